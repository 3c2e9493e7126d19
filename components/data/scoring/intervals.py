"""Confidence intervals of scores and of their differences: the only ones of the project.

Two sources of variance are estimated separately.

Test rows: rows of one cluster (service, customer, author, document) are not independent, so clusters are the units. A
metric is a function of sums over rows (`components.data.scoring.base`), so the scores without one cluster follow from
the difference of two sums, and the variance of an estimate d over G clusters follows from the delete-one-cluster
jackknife,

    v = (G - 1) / G  sum_g (d_(g) - mean d_(.))^2;    d_(g): the estimate without cluster g

(Efron & Stein 1981; for clusters MacKinnon, Nielsen & Webb 2023). Its degrees of freedom are the smaller one of
(sum n)^2 / sum n^2 - 1, from the effective number of clusters of n rows (Kish 1965; Carter, Schnepel & Steigerwald
2017), and 2 G / (kurtosis - 1), for a variance estimate from heavy-tailed values, such as the few rows on which
two systems differ. A bootstrap over clusters is too narrow if they are few, one over rows whenever rows are clustered
(`benchmarks/gate_error_rates.py`).

Training: the variance s^2 of a score between runs that differ in seed and sampled labels (`training_noise`). On one
sample of test rows it contains the variance u^2 between samples of what differs between runs, which v contains as well.
Therefore a mean over S runs has max(s^2 - u^2, 0) / S beside v; u^2 is the jackknife variance of the runs' deviations
from their mean. A single run is one artifact, which has no variance of training.

The bounds combine the variances v_i with degrees of freedom f_i as

    mean +- sqrt(sum_i t(alpha, f_i)^2 v_i)

(Banerjee 1960): at most the nominal error for any ratio of the variances. The quantile at Satterthwaite's degrees of
freedom is anti-conservative: up to 3 times the nominal error at alpha = 0.005 with two degrees of freedom.

Cross-validation: the models of K folds share training rows, and another sample of these gives other models. The
variance of their mean is 1 + K / (K - 1) times the one of as many independent test rows (Nadeau and Bengio 2003,
equation 9).

A score of which no unit differs has no variance by chance; its bound is the exact one of a share.

Disjoint intervals imply a difference between two systems, but not conversely; differences therefore have intervals of
their own, paired by seed (the same training labels) and by test row.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.data.scoring.base import Floats, ratio

Ints = NDArray[np.int64]

#: Minimum number of clusters of test rows: with fewer, the variance between clusters cannot be estimated.
MIN_GROUPS: Final = 5
#: Confidence level of all intervals of results.
CONFIDENCE: Final = 0.95
#: Share of wrong answers between two labels beyond which they are not told apart.
CONFUSED: Final = 0.25
#: Numbers of the dense sums that are in memory at once.
CHUNK = 4_000_000
#: Numbers of a matrix that stays in the processor's cache.
IN_CACHE = 50_000


@dataclass(frozen=True)
class Variance:
    """An estimated variance and its degrees of freedom; infinite for a known variance."""

    value: float
    freedom: float


NONE: Final = Variance(0.0, math.inf)


@dataclass(frozen=True)
class Interval:
    """A mean with the bounds of its confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether it excludes 0."""
        return self.low > 0 or self.high < 0

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def interval(
    values: Floats,
    without: Floats | None = None,
    sizes: Floats | None = None,
    *,
    confidence: float,
    training: Variance | None = None,
    within: tuple[float, float] = (-math.inf, math.inf),
    folds: int = 0,
) -> Interval:
    """The confidence interval of a mean over runs.

    Args:
        values: (S,) one score, or paired difference of scores, per run.
        without: (S, G) the values without each of G clusters of test rows; None: they do not come from test rows.
        training: variance of one value between runs on the same test rows; None: estimated from `values`.
        within: least and largest value of a score.
        folds: number of folds of a cross-validation that the values come from; 0: the rows were not learned from.
    """
    mean, count, error = float(np.mean(values)), len(values), (1 - confidence) / 2
    sampling, apart = NONE, 0.0
    if without is not None and sizes is not None:
        sampling = sampling_variance(without.mean(0), sizes)
        apart = float(jackknife(without - without.mean(0), sizes)[0].sum()) / max(count - 1, 1)
    if count == 1:
        training = NONE
    elif training is None:
        training = Variance(float(np.var(values, ddof=1)), count - 1)
    between = Variance(max(training.value - apart, 0.0) / count, training.freedom)
    if folds:
        sampling = replace(sampling, value=sampling.value * (1 + folds / (folds - 1)))
    half = half_width([between, sampling], error)
    if not half and sizes is not None and math.isfinite(within[1] - within[0]):
        half = (within[1] - within[0]) * exact_bound(float(sizes.sum() ** 2 / (sizes**2).sum()), error)
    return Interval(mean, max(mean - half, within[0]), min(mean + half, within[1]))


def inseparable_pairs(confused: NDArray[np.float64], counts: Sequence[int]) -> list[tuple[int, int, float]]:
    """Pairs of labels that are shown not to be told apart, and the share of their rows that have the other label as
    answer.

    Args:
        confused: (C, C) share of the rows of a label (row) that are answered with another one (column).
        counts: rows of each label.
    """
    result = []
    for pair in combinations(range(len(counts)), 2):
        if all(counts[label] for label in pair):
            rate = float(confused[pair] + confused[pair[::-1]]) / 2
            error = math.sqrt(sum(0.25 / counts[label] for label in pair)) / 2
            if rate - NormalDist().inv_cdf(CONFIDENCE) * error > CONFUSED:
                result.append((*pair, rate))
    return result


def exact_bound(units: float, error: float) -> float:
    """The largest share of errors of which this number of units shows none with a probability of `error` (Clopper and
    Pearson 1934)."""
    return 1.0 - float(error ** (1 / units))


def clusters_within(clusters: Ints | None, rows: Ints) -> Ints | None:
    """The clusters of these rows, numbered from 0. None if the rows belong to a single one: they are then a population
    of their own (one service, for instance), of which each row is a sample."""
    if clusters is None:
        return None
    numbers = np.unique(clusters[rows], return_inverse=True)[1]
    return numbers if numbers.any() else None


def sizes_of(clusters: Ints | None, rows: int) -> Floats:
    """(G,) numbers of rows of the clusters; of N rows that are independent, N ones."""
    return np.ones(rows) if clusters is None else np.bincount(clusters).astype(np.float64)


def left_out(
    statistics: sparse.csr_array, clusters: Ints | None, scores: Callable[[Floats], dict[str, Floats]]
) -> dict[str, Floats]:
    """Metrics without each of G clusters, each (G,).

    Args:
        statistics: (N, K) statistics of a task's scoring.
        clusters: (N,) number of each row's cluster, from 0; None: rows are independent.
        scores: sums (..., K) -> name -> metric (...), such as `Scoring.scores`.
    """
    rows, width = statistics.shape
    parts = statistics
    if clusters is not None:
        parts = sparse.csr_array((np.ones(rows), (clusters, np.arange(rows)))) @ statistics
    total = np.asarray(statistics.sum(0), dtype=np.float64).ravel()
    step = max(1, CHUNK // width)
    chunks = [scores(total - parts[first : first + step].toarray()) for first in range(0, parts.shape[0], step)]
    result = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    if "spearman" in result:
        result["spearman"] = spearman_without(statistics, np.arange(rows) if clusters is None else clusters)
    return result


def ranks_of(pair: Floats) -> Floats:
    from scipy import stats  # the import takes half a second

    return np.asarray(stats.rankdata(pair, axis=1), dtype=np.float64)


def spearman_without(statistics: sparse.csr_array, clusters: NDArray[np.int64]) -> Floats:
    """(G,) Spearman's rho without each of G clusters, among the other rows.

    Args:
        statistics: (N, K) of `components.data.tasks.kinds.numbers.Correlations`.
        clusters: (N,) numbers from 0.
    """
    pair, count = statistics[:, 1:3].toarray().T, len(clusters)
    ranks = ranks_of(pair)
    members = sparse.csr_array((np.ones(count), (clusters, np.arange(count))))
    parts, step = [], max(1, IN_CACHE // count)
    for first in range(0, members.shape[0], step):
        part = members[first : first + step]
        rows, means = part.indices, (count - np.diff(part.indptr) + 1) / 2
        sides = []
        for values, of_all in zip(pair, ranks, strict=True):
            # A rank falls by the rows below that are left out, and by half of those with the same value.
            falls = np.add.reduceat((np.sign(values - values[rows, None]) + 1) / 2, part.indptr[:-1])
            sides.append(np.where(part.toarray(), 0, of_all - falls - means[:, None]))
        aa, bb, ab = (np.einsum("gn,gn->g", sides[i], sides[j]) for i, j in ((0, 0), (1, 1), (0, 1)))
        parts.append(ratio(ab, np.sqrt(aa * bb)))
    return np.concatenate(parts)


def sampling_variance(without: Floats, sizes: Floats) -> Variance:
    """Variance of an estimate between samples of clusters, from the (G,) estimates without each cluster of `sizes`
    rows."""
    value, freedom = jackknife(without, sizes)
    return Variance(float(value), float(freedom))


def jackknife(without: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """Variances of estimates, and their degrees of freedom. `without`: (..., G) estimates without one of G clusters.
    `sizes`: (G,) or (..., G) numbers of rows. Returns (...) variances and (...) degrees of freedom; the variance is 0
    if all estimates are equal."""
    count = without.shape[-1]
    squares = (without - without.mean(-1, keepdims=True)) ** 2
    total = squares.sum(-1)
    effective = sizes.sum(-1) ** 2 / (sizes**2).sum(-1)
    # kurtosis - 1, at least of a two-point distribution
    excess = np.maximum(count * (squares**2).sum(-1) / np.maximum(total**2, 1e-300) - 1, 1e-9)
    return (count - 1) / count * total, np.minimum(effective - 1, 2 * count / excess)


def quantile(error: float | Floats, freedom: float | Floats) -> Floats:
    """The value that Student's t exceeds with probability `error`."""
    from scipy import special  # the import takes a quarter of a second

    # stdtrit is not defined at infinity; 1e10 degrees of freedom are normal to the last digits
    return np.asarray(-special.stdtrit(np.clip(freedom, 1e-3, 1e10), error), dtype=np.float64)


def half_width(variances: Sequence[Variance], error: float) -> float:
    """Half-width of the bounds with this one-sided error each (Banerjee 1960)."""
    return math.sqrt(sum(float(quantile(error, part.freedom)) ** 2 * part.value for part in variances if part.value))


@dataclass(frozen=True)
class TrainingNoise:
    """Variance of a score between training runs, pooled over all systems of one label budget.

    Attributes:
        run: of one run of a system.
        pair: of the difference of two systems' runs on the same labels; None: there is one system.
    """

    run: Variance
    pair: Variance | None
    systems: int
    seeds: int

    def of(self, *runs: Floats) -> Variance | None:
        """The variance of one system's runs, (S,), or of the difference of two. Runs that are all equal, as with a
        constant prediction, have none."""
        return (NONE, self.run, self.pair)[sum(int(np.ptp(values) > 0) for values in runs)]

    def as_dict(self) -> dict[str, float]:
        """Standard deviations and degrees of freedom, as in evaluation.json."""
        described = {"std": math.sqrt(self.run.value), "freedom": self.run.freedom}
        if self.pair is not None:
            described |= {"pair_std": math.sqrt(self.pair.value), "pair_freedom": self.pair.freedom}
        return described | {"systems": self.systems, "seeds": self.seeds}


def training_noise(scores: Floats) -> TrainingNoise | None:
    """The noise of A systems that were trained with the same S seeds at one label budget.

    The runs of one seed learn from the same labels, so seeds are the blocks of a two-way analysis of variance, score =
    system + seed + rest. The variance of a difference is the one of two rests, with (A - 1) (S - 1) degrees of freedom;
    the variance of a run is the one of seed and rest, with Satterthwaite's degrees of freedom. The systems are taken to
    have equal variances. Budgets are not pooled: with few labels the noise is several times as large. `scores`: (A, S);
    systems whose runs are all equal are left out of it. Returns None if no system has two runs that differ.
    """
    scores = scores[np.ptp(scores, axis=1) > 0] if scores.size else scores
    if not scores.size:
        return None
    systems, seeds = scores.shape
    of_seeds = scores.mean(0) - scores.mean()
    rest = scores - scores.mean(1, keepdims=True) - of_seeds
    freedom = (systems - 1) * (seeds - 1)
    square = float((rest**2).sum()) / max(freedom, 1)
    parts = float((of_seeds**2).sum()) / (seeds - 1), square * (systems - 1) / systems
    total = sum(parts)
    run = Variance(total, total**2 / (parts[0] ** 2 / (seeds - 1) + parts[1] ** 2 / max(freedom, 1)))
    return TrainingNoise(run, Variance(2 * square, freedom) if freedom else None, systems, seeds)
