"""Evaluation: metrics of all systems, their comparisons, benefits of transfer."""
