"""Drift: numbers about every served row, and their comparison with those of the training data."""
