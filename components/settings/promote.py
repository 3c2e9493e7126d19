"""`promote`: the promotion rule."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Positive, Section


class PromotionRule(Section):
    """When a challenger takes the champion's place. Scores are shares between 0 and 1."""

    #: A score of the task's kind (`components.scoring`); null: its deciding one.
    metric: str | None = None
    #: The challenger must be better by at least this ...
    least_gain: Annotated[float, Field(ge=0)] = 0.0
    #: ... with this confidence (one-sided, paired bootstrap over test rows).
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    resamples: Positive = 2000
    #: No slice with at least `slice_rows` rows may lose more than this, beyond what chance explains.
    largest_slice_loss: Annotated[float, Field(ge=0)] = 0.05
    slice_rows: Positive = 50
    #: Milliseconds for one text at the 50th percentile; null for no bound.
    latency_ms: Annotated[float, Field(gt=0)] | None = 50
