"""Metrics, one file per kind of target: functions of sums over rows (`components.scoring.base`).

`components.scoring.intervals` gives their intervals."""

from components.scoring.base import LOWER_IS_BETTER, Scoring, title

__all__ = ["LOWER_IS_BETTER", "Scoring", "title"]
