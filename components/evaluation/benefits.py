"""The three benefits of transfer and the number of labels that it saves.

A transferred model may have a higher start, a higher slope and a higher asymptote than one trained from scratch (Torrey
and Shavlik 2010, figure 2). They are computed from two curves:

training  dev metric against epochs, at the largest label budget. Start: before the encoder is updated (a head on its
          frozen features). Asymptote: the maximum. Slope: gain per epoch, from the start to the first point that
          reaches 90% of the gain.
labels    test metric against labels per class. Start: the smallest budget. Asymptote: the largest budget. Slope: gain
          per doubling of the labels (least squares). A start near the maximum leaves less to gain, so a higher start
          and asymptote often come with a lower slope. The curve needs at least two budgets.

Labels are counted per class, or in rows for kinds whose budgets count rows (`aggregates.unit`).

Each is reported for both systems and as a difference, with intervals over seeds, and for the label curve over test
rows. Differences are paired by seed, since runs with the same seed use the same labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from components.scoring.intervals import Interval, interval

Floats = NDArray[np.float64]

#: Fraction of the gain up to which the slope of a training curve is measured.
RISE = 0.9


@dataclass(frozen=True)
class Benefit:
    """One of the three benefits.

    Attributes:
        transferred: of the transferred system.
        scratch: of the system trained from scratch.
        difference: transferred minus scratch.
        seeds: number of seeds.
    """

    transferred: Interval
    scratch: Interval
    difference: Interval
    seeds: int

    def as_dict(self) -> dict[str, object]:
        """The benefit as in evaluation.json. `holds`: the interval of the difference is above zero; false for a single
        seed, which has no interval over seeds."""
        return {
            "transferred": self.transferred.as_dict(),
            "scratch": self.scratch.as_dict(),
            "difference": self.difference.as_dict(),
            "holds": self.seeds > 1 and self.difference.low > 0,
        }


def training_benefits(epochs: Sequence[float], scores: Sequence[float]) -> dict[str, float]:
    """Start, slope (gain per epoch) and asymptote of one run's dev curve. A curve with one point has slope 0."""
    start, best = scores[0], max(scores)
    end = next(index for index, score in enumerate(scores) if score >= start + RISE * (best - start))
    time = epochs[end] - epochs[0]
    return {"start": start, "slope": (scores[end] - start) / time if time else 0.0, "asymptote": best}


def label_slope(labels: Sequence[float], scores: Floats) -> Floats:
    """Gain per doubling of the labels.

    Args:
        labels: K labels per class, ascending, with at least two different values.
        scores: (K, M) the metric at each of them, of M curves.

    Returns:
        (M,)
    """
    return np.asarray(np.polyfit(np.log2(labels), scores, 1)[0])


def compare(
    transferred: Mapping[int, Mapping[str, float | Floats]],
    scratch: Mapping[int, Mapping[str, float | Floats]],
    *,
    confidence: float,
    sizes: Floats | None = None,
) -> dict[str, Benefit]:
    """Benefits over the common seeds of two systems.

    Args:
        transferred: seed -> benefit -> its value; with `sizes` followed by its values without each cluster, (1 + G,).
        scratch: likewise.
        confidence: of the intervals.
        sizes: (G,) rows of the clusters of test rows; None: the values do not come from test.
    """
    seeds = sorted(transferred.keys() & scratch.keys())

    def around(values: Floats) -> Interval:
        return interval(values[:, 0], None if sizes is None else values[:, 1:], sizes, confidence=confidence)

    found = {}
    for name in transferred[seeds[0]]:
        ours, theirs = (np.stack([np.atleast_1d(of[seed][name]) for seed in seeds]) for of in (transferred, scratch))
        found[name] = Benefit(around(ours), around(theirs), around(ours - theirs), seeds=len(seeds))
    return found


def labels_needed(score: float, *, labels: Sequence[float], scores: Sequence[float]) -> float | None:
    """Labels per class at which a system reaches `score`.

    Args:
        score: of another system.
        labels: the system's labels per class, ascending.
        scores: its metric at each of them, interpolated linearly in log(labels).

    Returns:
        The smallest budget if the curve starts above `score`; None if the curve does not reach it.
    """
    if scores[0] >= score:
        return float(labels[0])
    for index in range(1, len(labels)):
        if scores[index] >= score:
            fraction = (score - scores[index - 1]) / (scores[index] - scores[index - 1])
            low, high = np.log(labels[index - 1]), np.log(labels[index])
            return float(np.exp(low + fraction * (high - low)))
    return None
