"""The gain of one system over another on the same test rows, and what it takes to show one.

Both systems are artifacts: the only variance of the gain is that between samples of test clusters
(`components.scoring.intervals`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from scipy import sparse

from components.scoring import Scoring
from components.scoring.intervals import Ints, Variance, half_width, left_out, sampling_variance, sizes_of

#: Power of the minimal detectable effect and of the number of labels needed.
POWER = 0.8
#: Largest number of clusters that `units_needed` considers.
MOST_UNITS = 10**9


@dataclass(frozen=True)
class Gain:
    """The gain of a candidate, and its variance due to the sample of test rows.

    Attributes:
        candidate: score of the candidate.
        other: score of the other system.
        sampling: variance of the gain between samples of `units` clusters.
        units: number of clusters (of rows, if rows are independent).
    """

    candidate: float
    other: float
    sampling: Variance
    units: int

    @property
    def value(self) -> float:
        """The difference of the scores."""
        return self.candidate - self.other


def compare(
    other: sparse.csr_array, candidate: sparse.csr_array, clusters: Ints | None, *, scoring: Scoring, metric: str
) -> Gain:
    """The gain of `candidate` over `other`.

    Args:
        other: (N, K) statistics of the task's scoring.
        candidate: (N, K) statistics of the same rows.
        clusters: (N,) number of each row's cluster, from 0; None: rows are independent.
        scoring: of the task.
        metric: name of the metric.
    """
    before, after = (float(scoring.scores(rows.sum(0))[metric]) for rows in (other, candidate))
    without = [left_out(rows, clusters, scoring.scores)[metric] for rows in (other, candidate)]
    sizes = sizes_of(clusters, other.shape[0])
    return Gain(after, before, sampling_variance(without[1] - without[0], sizes), len(sizes))


def detectable(sampling: Variance, error: float) -> float:
    """Minimal detectable effect: the true distance from the threshold that is shown with probability `POWER`."""
    return half_width([sampling], error) + NormalDist().inv_cdf(POWER) * math.sqrt(sampling.value)


def power(sampling: Variance, error: float, effect: float) -> float:
    """Probability that a true distance of `effect` from the threshold is shown."""
    if sampling.value == 0:
        return float(effect > 0)
    return NormalDist().cdf((effect - half_width([sampling], error)) / math.sqrt(sampling.value))


def units_needed(effect: float, sampling: Variance, units: int, *, error: float) -> int | None:
    """Number of clusters at which a true distance of `effect` from the threshold is shown with probability `POWER`.

    The variance is proportional to 1 / clusters, its degrees of freedom to the number of clusters.

    Args:
        effect: observed gain minus the threshold.
        sampling: variance with `units` clusters.
        units: present number of clusters.
        error: one-sided error of the comparison.

    Returns:
        The number, more than `units`; None if `effect` is not positive, or no number is enough.
    """

    def enough(count: int) -> bool:
        return detectable(Variance(sampling.value * units / count, sampling.freedom * count / units), error) <= effect

    if effect <= 0 or not enough(MOST_UNITS):
        return None
    low, high = units, MOST_UNITS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
