"""Metrics, one file per kind of target: functions of sums over rows (`components.data.scoring.base`).

`components.data.scoring.intervals` gives their intervals."""

from components.data.scoring.base import LOWER_IS_BETTER, Scoring, title

__all__ = ["LOWER_IS_BETTER", "Scoring", "title"]
