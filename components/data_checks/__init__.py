"""Checks of new data against the last accepted version, before training."""
