"""Confidence intervals for metrics of systems that were trained with several seeds and scored on one test set.

There are two sources of variance: training (sampled labels, initial weights) and the sample of test rows. The reported
value is the mean over S seeds; its variance is estimated as the sum of both components,

    V = s^2 / S + v;    s^2: sample variance of the seeds' scores,    v: bootstrap variance of the mean over test rows,

and the interval is mean +- t sqrt(V) with Student's t at the Welch-Satterthwaite degrees of freedom of that sum
(Satterthwaite 1946), where the bootstrap component is treated as known. A bootstrap over three seeds would be far too
narrow, because resampled values cannot lie outside the three observed ones. A t-interval over seeds alone would ignore
the variance of the test set. Disjoint intervals imply a difference between two systems, but not conversely; differences
therefore have intervals of their own, paired by seed (the same training labels) and by test row.
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
    """A mean with the bounds of its confidence interval."""

    mean: float
    low: float
    high: float

    def is_disjoint(self, other: Interval) -> bool:
        """Whether the two intervals do not overlap."""
        return self.low > other.high or self.high < other.low

    def within(self, least: float, most: float) -> Interval:
        """The interval clipped to the metric's range [least, most]."""
        return Interval(self.mean, max(self.low, least), min(self.high, most))

    def as_dict(self) -> dict[str, float]:
        """Mean, low and high."""
        return asdict(self)


def interval(seeds: Floats, resampled: Floats | None = None, *, confidence: float) -> Interval:
    """The confidence interval of a mean over seeds.

    Args:
        seeds: (S,) one value per seed. A single seed contributes no variance.
        resampled: (R,) the mean over seeds on R bootstrap resamples of the test rows; None: no variance of test rows.
        confidence: confidence level, such as 0.95.
    """
    mean = float(np.mean(seeds))
    count = len(seeds)
    of_seeds = float(np.var(seeds, ddof=1)) / count if count > 1 else 0.0
    of_rows = float(np.var(resampled, ddof=1)) if resampled is not None else 0.0
    variance = of_seeds + of_rows
    # If all seeds have the same value, only the component of the test rows remains, which is normal.
    freedom = variance**2 / (of_seeds**2 / (count - 1)) if of_seeds > 0 else math.inf
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(variance)
    return Interval(mean, mean - half, mean + half)
