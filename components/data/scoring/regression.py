"""Metrics of numbers for single texts.

Targets and answers are [value]. The primary metric is the coefficient of determination, because it is a function of the
squared error, so that a model whose answers have the wrong mean or spread is not chosen; correlations ignore both.

    R^2 = 1 - sum (x - y)^2 / sum (x - mean x)^2

with the targets x and the answers y: 1 is exact, 0 is the error of the mean, and there is no lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from components.data.scoring.base import Floats, Inputs, Vectors
from components.data.scoring.similarity import NOTHING, Correlations


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
