"""`promote`: the promotion rule."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Positive, Section


class PromotionRule(Section):
    """When a challenger replaces the champion. Scores are fractions between 0 and 1."""

    #: Metric of the task's kind that is compared; null: its primary metric.
    metric: str | None = None
    #: Minimum gain over the champion.
    least_gain: Annotated[float, Field(ge=0)] = 0.0
    #: Confidence of the gain: one-sided, paired bootstrap over test rows.
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    #: Bootstrap resamples.
    resamples: Positive = 2000
    #: Maximum decrease of the metric on a slice. Larger decreases reject the challenger if they are significant.
    largest_slice_loss: Annotated[float, Field(ge=0)] = 0.05
    #: Minimum number of test rows of a slice for the check of `largest_slice_loss`.
    slice_rows: Positive = 50
    #: Maximum median latency of one text in milliseconds; null: no limit.
    latency_ms: Annotated[float, Field(gt=0)] | None = 50
