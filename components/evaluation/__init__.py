"""Evaluation: metrics with confidence intervals, comparisons of systems, benefits of transfer."""
