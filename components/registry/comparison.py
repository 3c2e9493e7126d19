"""The gain of one system over another on the same test rows, with bounds.

Two sources of variance are estimated separately.

Sampling of test rows: the delete-one-cluster jackknife. Every metric is a function of sums over rows
(`components.scoring`), so the scores without one cluster follow from the difference of two sums, and the variance of
the gain d over G clusters is

    v = (G - 1) / G  sum_g (d_(g) - mean d_(.))^2;    d_(g): the gain without cluster g

(Efron & Stein 1981; for clusters MacKinnon, Nielsen & Webb 2023). The degrees of freedom are the smaller one of
(sum n)^2 / sum n^2 - 1, from the effective number of clusters of n rows (Kish 1965; Carter, Schnepel & Steigerwald
2017), and 2 G / (kurtosis - 1), those of a variance estimate from heavy-tailed values, such as the few rows on which
two systems differ. `benchmarks/gate_error_rates.py` compares the rates of false promotions with those of a cluster
bootstrap, which exceed the nominal rate if there are few clusters.

Training: the variance of the score between runs of one recipe that differ in their seed only. It is estimated from
the runs of several seeds, with few degrees of freedom.

The bounds combine the variances v_i with degrees of freedom f_i as

    gain +- sqrt(sum_i t(alpha, f_i)^2 v_i)

(Banerjee 1960): at most the nominal error for any ratio of the variances. The quantile at Satterthwaite's degrees of
freedom is anti-conservative here: up to 3 times the nominal error at alpha = 0.005 with two degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from components.scoring import Scoring

Floats = NDArray[np.float64]

#: Power of the minimal detectable effect and of the number of labels needed.
POWER = 0.8
#: Std of the score between training runs that is assumed if no recipe was trained with several seeds. The largest std
#: of the built-in task at 20 labels per class is 0.018.
DEFAULT_NOISE = 0.02
#: Largest number of clusters that `labels_needed` considers.
MOST_UNITS = 10**9
#: Numbers of the dense sums that are in memory at once.
CHUNK = 4_000_000


@dataclass(frozen=True)
class Variance:
    """An estimated variance and its degrees of freedom; infinite for a known variance."""

    value: float
    freedom: float


@dataclass(frozen=True)
class TrainingNoise:
    """Variance of a recipe's score between training runs.

    Attributes:
        variance: of the score of one run.
        source: where it comes from, such as "6 runs of 2 versions".
        recipe: identity of the recipe. Two systems of one recipe have one estimate.
    """

    variance: Variance
    source: str
    recipe: str


#: If there is neither a run of another seed nor an earlier version of the recipe.
UNKNOWN_NOISE = Variance(DEFAULT_NOISE**2, math.inf)


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
    other: sparse.csr_array,
    candidate: sparse.csr_array,
    groups: NDArray[np.int64] | None,
    *,
    scoring: Scoring,
    metric: str,
) -> Gain:
    """The gain of `candidate` over `other` by the delete-one-cluster jackknife.

    Args:
        other: (N, K) statistics of the task's scoring.
        candidate: (N, K) statistics of the same rows.
        groups: (N,) number of each row's cluster, from 0; None: rows are independent.
        scoring: of the task.
        metric: name of the metric.
    """
    if groups is None:
        sizes, sums = np.ones(other.shape[0]), (other, candidate)
    else:
        sizes = np.bincount(groups).astype(np.float64)
        rows = len(groups)
        member = sparse.csr_array((np.ones(rows), (groups, np.arange(rows))), shape=(len(sizes), rows))
        sums = (member @ other, member @ candidate)
    totals = [np.asarray(part.sum(0), dtype=np.float64).ravel() for part in sums]
    before, after = (float(scoring.scores(total)[metric]) for total in totals)
    step = max(1, CHUNK // totals[0].size)
    left_out = [
        gains_of(
            *(total - part[first : first + step].toarray() for total, part in zip(totals, sums, strict=True)),
            scoring=scoring,
            metric=metric,
        )
        for first in range(0, len(sizes), step)
    ]
    variance, freedom = jackknife(np.concatenate(left_out), sizes)
    return Gain(after, before, Variance(float(variance), float(freedom)), len(sizes))


def gains_of(other: Floats, candidate: Floats, *, scoring: Scoring, metric: str) -> Floats:
    """Sums (..., K) of two systems -> gains (...)."""
    return np.asarray(scoring.scores(candidate)[metric] - scoring.scores(other)[metric])


def jackknife(left_out: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """Variance of the gain, and its degrees of freedom.

    Args:
        left_out: (..., G) gains without one of G clusters.
        sizes: (G,) or (..., G) numbers of rows.

    Returns:
        (...) variances and (...) degrees of freedom; the variance is 0 if all gains are equal.
    """
    count = left_out.shape[-1]
    squares = (left_out - left_out.mean(-1, keepdims=True)) ** 2
    total = squares.sum(-1)
    effective = sizes.sum(-1) ** 2 / (sizes**2).sum(-1)
    # kurtosis - 1, at least of a two-point distribution
    excess = np.maximum(count * (squares**2).sum(-1) / np.maximum(total**2, 1e-300) - 1, 1e-9)
    return (count - 1) / count * total, np.minimum(effective - 1, 2 * count / excess)


def quantile(error: float | Floats, freedom: float | Floats) -> Floats:
    """The value that Student's t exceeds with probability `error`."""
    # stdtrit is not defined at infinity; 1e10 degrees of freedom are normal to the last digits
    return np.asarray(-special.stdtrit(np.clip(freedom, 1e-3, 1e10), error), dtype=np.float64)


def half_width(variances: Sequence[Variance], error: float) -> float:
    """Half-width of the one-sided bounds (Banerjee 1960)."""
    return math.sqrt(sum(float(quantile(error, part.freedom)) ** 2 * part.value for part in variances if part.value))


def detectable(variances: Sequence[Variance], error: float) -> float:
    """Minimal detectable effect: the true distance from the threshold that is shown with probability `POWER`."""
    std = math.sqrt(sum(part.value for part in variances))
    return half_width(variances, error) + NormalDist().inv_cdf(POWER) * std


def power(variances: Sequence[Variance], error: float, effect: float) -> float:
    """Probability that a true distance of `effect` from the threshold is shown."""
    std = math.sqrt(sum(part.value for part in variances))
    if std == 0:
        return float(effect > 0)
    return NormalDist().cdf((effect - half_width(variances, error)) / std)


def units_needed(
    effect: float, sampling: Variance, units: int, *, further: Sequence[Variance] = (), error: float
) -> int | None:
    """Number of clusters at which a true distance of `effect` from the threshold is shown with probability `POWER`.

    The sampling variance is proportional to 1 / clusters, its degrees of freedom to the number of clusters. The
    variance of training does not depend on the test rows.

    Args:
        effect: observed gain minus the threshold.
        sampling: sampling variance with `units` clusters.
        units: present number of clusters.
        further: variances of training.
        error: one-sided error of the comparison.

    Returns:
        The number, more than `units`; None if `effect` is not positive, or no number is enough.
    """

    def enough(count: int) -> bool:
        scaled = Variance(sampling.value * units / count, sampling.freedom * count / units)
        return detectable([scaled, *further], error) <= effect

    if effect <= 0 or not enough(MOST_UNITS):
        return None
    low, high = units, MOST_UNITS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def training_variances(candidate: TrainingNoise | None, other: TrainingNoise | None) -> list[Variance]:
    """Variance of the difference of two runs due to training: sigma_candidate^2 + sigma_other^2.

    Runs of one recipe share one estimate, so the sum is one variance of 2 sigma^2. A recipe without an estimate gets
    `UNKNOWN_NOISE`.
    """
    if candidate is not None and other is not None and candidate.recipe == other.recipe:
        shared = candidate.variance
        return [Variance(2 * shared.value, shared.freedom)]
    return [noise.variance if noise is not None else UNKNOWN_NOISE for noise in (candidate, other)]
