"""What transfer brings, as numbers: the three benefits, and how many labels it saves.

A transferred model may have a higher start, a higher slope and a higher asymptote than one trained from scratch (Torrey
and Shavlik 2010, figure 2). They are read off two curves:

training  dev score against epochs, at the largest label budget. Start: before the encoder has learned anything (a head
          on its frozen features). Asymptote: the best score. Slope: gain an epoch, from the start to the first point
          with nine tenths of the way to the asymptote.
labels    test score against labels a class. Start: the smallest budget. Asymptote: the largest. Slope: gain for each
          doubling of the labels (least squares). A start near the ceiling leaves less to gain, so a higher start and
          asymptote often go with a lower slope here; the numbers say so. One number of labels makes no curve.

Each is given for both systems and as a difference, with intervals over seeds (paired by seed: the same labels).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from components.evaluation.intervals import Interval, interval

Floats = NDArray[np.float64]

#: Share of the gain after which a training curve counts as having arrived.
ARRIVED = 0.9
BENEFITS = ("start", "slope", "asymptote")


@dataclass(frozen=True)
class Benefit:
    """One of the three benefits: of the transferred system, from scratch, and the former minus the latter; the number
    of seeds that they are means over."""

    transferred: Interval
    scratch: Interval
    difference: Interval
    seeds: int

    def as_dict(self) -> dict[str, object]:
        """For JSON; `holds`: the difference is above zero with the confidence of the intervals, which a single seed
        gives none of."""
        return {
            "transferred": self.transferred.as_dict(),
            "scratch": self.scratch.as_dict(),
            "difference": self.difference.as_dict(),
            "holds": self.seeds > 1 and self.difference.low > 0,
        }


def of_training(epochs: Sequence[float], scores: Sequence[float]) -> dict[str, float]:
    """Start, slope (score an epoch) and asymptote of one run's dev curve; a curve of one point has slope 0."""
    start, best = scores[0], max(scores)
    arrived = next(place for place, score in enumerate(scores) if score >= start + ARRIVED * (best - start))
    time = epochs[arrived] - epochs[0]
    return {"start": start, "slope": (scores[arrived] - start) / time if time else 0.0, "asymptote": best}


def of_labels(labels: Sequence[float], scores: Sequence[float]) -> dict[str, float]:
    """Start, slope (score for each doubling of the labels) and asymptote of one seed's scores, budgets ascending, of
    which at least two give different numbers of labels."""
    slope = float(np.polyfit(np.log2(labels), scores, 1)[0])
    return {"start": scores[0], "slope": slope, "asymptote": scores[-1]}


def compare(
    transferred: Mapping[int, Mapping[str, float]], scratch: Mapping[int, Mapping[str, float]], *, confidence: float
) -> dict[str, Benefit]:
    """The three benefits from {seed: {start, slope, asymptote}} of both systems, over the seeds that both have."""
    seeds = sorted(transferred.keys() & scratch.keys())
    found = {}
    for name in BENEFITS:
        ours = np.asarray([transferred[seed][name] for seed in seeds])
        theirs = np.asarray([scratch[seed][name] for seed in seeds])
        found[name] = Benefit(
            interval(ours, confidence=confidence),
            interval(theirs, confidence=confidence),
            interval(ours - theirs, confidence=confidence),
            seeds=len(seeds),
        )
    return found


def labels_needed(score: float, *, labels: Sequence[float], scores: Sequence[float]) -> float | None:
    """Labels a class at which a system reaches `score`: its curve (budgets ascending) interpolated over the logarithm
    of the labels. The smallest budget if it is there already; None if the curve never gets there."""
    if scores[0] >= score:
        return float(labels[0])
    for place in range(1, len(labels)):
        if scores[place] >= score:
            share = (score - scores[place - 1]) / (scores[place] - scores[place - 1])
            low, high = np.log(labels[place - 1]), np.log(labels[place])
            return float(np.exp(low + share * (high - low)))
    return None
