"""Drift: numbers about every served row, and their comparison with the training data."""
