"""Metrics of numbers: the similarity of two texts, or a number for one text.

Targets and answers are [value]. Spearman's rho is Pearson's r of the ranks (ties share their mean rank). It is not a
function of sums: rows that are scored by themselves are ranked among themselves (`Scoring.of_part`,
`spearman_without`).

The primary metric of a number for one text is the coefficient of determination, because it is a function of the squared
error, so that a model whose answers have the wrong mean or spread is not chosen; correlations ignore both.

    R^2 = 1 - sum (x - y)^2 / sum (x - mean x)^2

with the targets x and the answers y: 1 is exact, 0 is the error of the mean, and there is no lower bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.data.scoring.base import Fields, Floats, Inputs, Judged, Scoring, Vector, Vectors, ratio

#: A variance below this share of the second moment counts as 0 (rounding).
NOTHING = 1e-12
#: Numbers of a matrix that stays in the processor's cache.
IN_CACHE = 50_000


class Correlations(Scoring):
    """K = 11 sums: rows; x, y, x^2, y^2, xy of the values, and the same of the ranks. Values and ranks are centred on
    all rows, which leaves correlations unchanged and keeps the sums small."""

    constant_name, score_name = "mean value", "predicted value"

    def in_words(self, fields: Fields, target: Vector) -> str:
        return f"{target[0]:.4g}"

    def judged(self, fields: Fields, target: Vector, answer: Vector) -> Judged:
        size = abs(float(answer[0]) - float(target[0]))
        return self.compared(fields, target, answer, size) if size > 0 else None

    def described(self, answer: Vector) -> tuple[int, float]:
        return -1, float(answer[0])

    def named(self, target: Vector) -> tuple[str, ...]:
        return (f"{target[0]:.1g}",)

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return dict.fromkeys(self.names, (-1.0, 1.0))

    @property
    def width(self) -> int:
        return 11

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        count = len(targets)
        pair = np.array([[value[0] for value in values] for values in (targets, answers)], dtype=np.float64)
        return sparse.csr_array(np.column_stack([np.ones(count), _products(pair), _products(_ranks(pair))]))

    def of_part(self, statistics: sparse.csr_array) -> sparse.csr_array:
        columns = statistics.toarray()
        columns[:, 6:11] = _products(_ranks(columns[:, 1:3].T))
        return sparse.csr_array(columns)

    def scores(self, sums: Floats) -> dict[str, Floats]:
        n = sums[..., 0]
        return {"spearman": _correlation(n, sums[..., 6:11]), "pearson": _correlation(n, sums[..., 1:6])}

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        return [np.asarray([np.mean([target[0] for target in targets])], dtype=np.float32)] * len(targets)


@dataclass(frozen=True)
class Similarity(Correlations):
    """Similarity, scored by correlations alone."""

    names = ("spearman", "pearson")


@dataclass(frozen=True)
class Regression(Correlations):
    """K = 13 sums: the sums of `Correlations`, then |x - y| and (x - y)^2."""

    names = ("r2", "pearson", "spearman", "mae")

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {**super().ranges, "r2": (-np.inf, 1.0), "mae": (0.0, np.inf)}

    @property
    def width(self) -> int:
        return super().width + 2

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        x, y = (np.asarray([value[0] for value in values], dtype=np.float64) for values in (targets, answers))
        errors = np.stack([abs(x - y), (x - y) ** 2], axis=1)
        return sparse.csr_array(sparse.hstack([super().statistics(fields, targets, answers), errors]))

    def scores(self, sums: Floats) -> dict[str, Floats]:
        """R^2 and correlations, 0 if the targets are equal; mean absolute error."""
        n, x, xx = sums[..., 0], sums[..., 1], sums[..., 3]
        spread = xx - x * x / n
        varies = spread > NOTHING * xx
        explained = np.where(varies, 1 - sums[..., 12] / np.where(varies, spread, 1), 0)
        metrics = {**super().scores(sums), "r2": explained, "mae": sums[..., 11] / n}
        return {name: metrics[name] for name in self.names}


def _ranks(pair: Floats) -> Floats:
    from scipy import stats  # the import takes half a second

    return np.asarray(stats.rankdata(pair, axis=1), dtype=np.float64)


def _products(pair: Floats) -> Floats:
    """(2, N) -> (N, 5): a, b, a^2, b^2, ab of the centred values."""
    a, b = pair - pair.mean(1, keepdims=True)
    return np.stack([a, b, a * a, b * b, a * b], axis=1)


def spearman_without(statistics: sparse.csr_array, clusters: NDArray[np.int64]) -> Floats:
    """(G,) Spearman's rho without each of G clusters, among the other rows.

    Args:
        statistics: (N, K) of `Correlations`.
        clusters: (N,) numbers from 0.
    """
    pair, count = statistics[:, 1:3].toarray().T, len(clusters)
    ranks = _ranks(pair)
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


def _correlation(n: Floats, sums: Floats) -> Floats:
    """Pearson's r from n and sums (..., 5) of x, y, x^2, y^2, xy."""
    x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread_x, spread_y = n * xx - x * x, n * yy - y * y
    varies = (spread_x > NOTHING * n * xx) & (spread_y > NOTHING * n * yy)
    below = np.sqrt(np.where(varies, spread_x * spread_y, 1))
    return np.clip(np.where(varies, (n * xy - x * y) / below, 0), -1, 1)
