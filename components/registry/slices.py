"""Gains of a candidate on the slices of the test rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from components.registry.comparison import compare, power
from components.registry.scored import TestRows
from components.scoring.intervals import MIN_GROUPS, clusters_within, half_width
from components.settings.promote import PromotionRule


@dataclass(frozen=True)
class SliceChange:
    """Scores of both systems on one slice.

    Attributes:
        name: of the slice.
        rows: number of its test rows.
        champion: score of the champion on them.
        candidate: score of the candidate on them.
        low: lower bound of the gain: at the error of the comparison for a named slice, otherwise at that of the slices.
        high: upper bound of the gain.
        margin: maximum loss; of a named slice (`promote.slices`), its own.
        named: whether the slice is named in the rule.
        power: of a named slice: probability of excluding a loss of `margin` if the scores are equal.
    """

    name: str
    rows: int
    champion: float
    candidate: float
    low: float
    high: float
    margin: float
    named: bool = False
    power: float | None = None

    @property
    def beyond_chance(self) -> bool:
        """Whether the candidate is significantly worse: a named slice by more than its margin, any other at all (the
        loss itself has to exceed the margin)."""
        if self.named:
            return self.high < -self.margin
        return self.high < 0 and self.champion - self.candidate > self.margin

    @property
    def shown(self) -> bool:
        """Whether a loss of more than the margin is excluded; too few rows exclude nothing, because their variance may
        be 0 by chance."""
        return self.rows >= MIN_GROUPS and self.low > -self.margin

    def __str__(self) -> str:
        direction = "falls" if self.candidate < self.champion else "goes"
        return f"slice {self.name!r} ({self.rows} rows) {direction} from {self.champion:.3f} to {self.candidate:.3f}"


def slice_changes(
    rows: TestRows, other: sparse.csr_array, candidate: sparse.csr_array, rule: PromotionRule, metric: str, alpha: float
) -> tuple[SliceChange, ...]:
    """Gains on the named slices and on the large ones. Units are the clusters (`clusters_within`)."""
    if rows.slices is None:
        return ()
    of_row = np.array([name or "" for name in rows.slices])
    names, counts = np.unique(of_row[of_row != ""], return_counts=True)
    known = dict(zip(map(str, names), counts, strict=True))
    named = [name for name in rule.slices if name in known]
    large = [name for name, count in known.items() if count >= rule.slice_rows and name not in named]
    clusters = rows.clusters
    changes = []
    for name in [*named, *large]:
        inside = np.flatnonzero(of_row == name)
        own = clusters_within(clusters, inside)
        gain = compare(other[inside], candidate[inside], own, scoring=rows.scoring, metric=metric)
        error = alpha if name in named else (1 - rule.confidence) / len(large)
        half = half_width([gain.sampling], error)
        margin = rule.slices[name] if name in named else rule.largest_slice_loss
        found = power(gain.sampling, error, margin) if len(inside) >= MIN_GROUPS else 0.0
        changes.append(
            SliceChange(
                name=name,
                rows=len(inside),
                champion=gain.other,
                candidate=gain.candidate,
                low=gain.value - half,
                high=gain.value + half,
                margin=margin,
                named=name in named,
                power=found if name in named else None,
            )
        )
    return tuple(changes)
