"""Registered models as files for other programs."""
