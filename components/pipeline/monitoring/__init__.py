"""Monitoring of a running project: drift checks of champions, and disk space."""
