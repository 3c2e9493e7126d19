"""`promote`: the promotion rule."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from components.settings.section import Positive, Section

#: `superiority`: better than the champion. `non_inferiority`: worse by less than `margin` (fresher data, removed
#: documents, a cheaper model). `latency`: non-inferior and significantly faster.
Mode = Literal["superiority", "non_inferiority", "latency"]
Loss = Annotated[float, Field(ge=0)]


class PromotionRule(Section):
    """When a challenger replaces the champion. Scores are fractions between 0 and 1."""

    #: What the challenger has to show.
    mode: Mode = "superiority"
    #: Metric of the task's kind that is compared; null: its primary metric.
    metric: str | None = None
    #: Minimum gain over the champion, in mode `superiority`.
    least_gain: Loss = 0.0
    #: Maximum loss against the champion, in modes `non_inferiority` and `latency`.
    margin: Annotated[float, Field(gt=0)] = 0.01
    #: 1 - confidence is the probability of a false promotion by any of the comparisons on one version of the test rows,
    #: however many there are: the k-th one is made at the one-sided error (1 - confidence) / (k (k + 1)).
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    #: Named slices: name -> maximum loss. A challenger is promoted only if a larger loss is excluded.
    slices: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    #: Maximum decrease of the metric on any other slice. A larger one rejects the challenger if it is significant.
    largest_slice_loss: Loss = 0.05
    #: Minimum number of test rows of a slice for the check of `largest_slice_loss`.
    slice_rows: Positive = 50
    #: Maximum median latency of one text in milliseconds; null: no limit.
    latency_ms: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _keys_of_the_mode(self) -> PromotionRule:
        if self.mode == "superiority" and "margin" in self.model_fields_set:
            raise ValueError("key margin has no effect in mode superiority; set mode: non_inferiority or remove margin")
        if self.mode != "superiority" and "least_gain" in self.model_fields_set and self.least_gain > 0:
            raise ValueError(f"key least_gain has no effect in mode {self.mode}; set margin or remove least_gain")
        return self

    @property
    def threshold(self) -> float:
        """The gain that the lower bound has to exceed."""
        return self.least_gain if self.mode == "superiority" else -self.margin

    def error_of(self, use: int) -> float:
        """One-sided error of the k-th comparison on one version of the test rows: alpha / (k (k + 1)).

        The errors of all comparisons sum to alpha = 1 - confidence (alpha spending; the union bound needs no
        assumption on the dependence between comparisons).
        """
        return (1 - self.confidence) / (use * (use + 1))
