"""Intervals around scores of systems that were trained with several seeds and scored on one test set.

Two things are random: the training (which labels were drawn, how the weights began) and the test rows. The score that
is reported is the mean over S seeds; its variance is estimated as the sum of both shares,

    V = s^2 / S + v;    s^2: sample variance of the seeds' scores,    v: bootstrap variance of the mean over test rows,

and the interval is mean +- t sqrt(V) with Student's t at the Welch-Satterthwaite degrees of freedom of that sum
(Satterthwaite 1946), in which the bootstrap share counts as known. A bootstrap over three seeds would be far too narrow
(it cannot leave the three values seen), and a t-interval over seeds alone would leave out that another test set gives
another score. Two systems with intervals that do not overlap differ; the opposite does not follow, and so differences
have an interval of their own: paired, by seed (the same labels were drawn) and by row (the same texts were labelled).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean with its bounds."""

    mean: float
    low: float
    high: float

    def apart_from(self, other: Interval) -> bool:
        """Whether the two intervals do not overlap."""
        return self.low > other.high or self.high < other.low

    def within(self, least: float, most: float) -> Interval:
        """The part of the interval that the score can reach."""
        return Interval(self.mean, max(self.low, least), min(self.high, most))

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


def interval(seeds: Floats, draws: Floats | None = None, *, confidence: float) -> Interval:
    """The interval of a mean over seeds.

    Args:
        seeds: (S,) one value a seed. With a single one, only the share of the test rows is known.
        draws: (R,) the mean over seeds on R bootstrap draws of the test rows; None where rows have no part in it.
        confidence: such as 0.95.
    """
    mean = float(np.mean(seeds))
    count = len(seeds)
    of_seeds = float(np.var(seeds, ddof=1)) / count if count > 1 else 0.0
    of_rows = float(np.var(draws, ddof=1)) if draws is not None else 0.0
    variance = of_seeds + of_rows
    # Where the seeds do not differ at all, nothing is left but the rows' share, which is normal.
    freedom = variance**2 / (of_seeds**2 / (count - 1)) if of_seeds > 0 else math.inf
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(variance)
    return Interval(mean, mean - half, mean + half)
