"""Metrics, one file per kind of target. Every metric is a function of sums over rows, so that a bootstrap over rows is
one matrix product (see `components.scoring.base`)."""

from components.scoring.base import LOWER_IS_BETTER, Resamples, Scoring, resampled, title

__all__ = ["LOWER_IS_BETTER", "Resamples", "Scoring", "resampled", "title"]
