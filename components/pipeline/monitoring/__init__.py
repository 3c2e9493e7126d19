"""Monitoring of a running project: drift checks of champions, disk space, and what can be deleted."""
