"""Metrics, one file per kind of target. Every metric is a function of sums over rows, so that the scores without some of
the rows cost one subtraction (see `components.scoring.base`); their intervals are those of `components.scoring.intervals`."""

from components.scoring.base import LOWER_IS_BETTER, Scoring, title

__all__ = ["LOWER_IS_BETTER", "Scoring", "title"]
