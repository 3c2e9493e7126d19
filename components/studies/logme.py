"""Logarithm of maximum evidence (LogME; You et al. 2021, by the fixed point of You et al. 2022, algorithm 3): how well
features explain labels, without training. A linear model y = F w + noise with w ~ N(0, 1/alpha) and noise ~ N(0,
1/beta) has the evidence p(y | F, alpha, beta), which is maximised over alpha and beta.

Shape suffixes: N rows, D features, C labels, R rank.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Maximum number of fixed-point iterations, and the relative change of alpha / beta at which they stop.
STEPS, TOLERANCE = 1000, 1e-6
#: Keeps the precisions finite if the features explain nothing or everything.
LEAST = 1e-10


def logme(features_ND: Floats, targets_NC: Floats) -> float:
    """The maximum log evidence in nats per row, mean over the columns of the targets. `features_ND`: features of N
    rows, neither centred nor scaled, as in the paper. `targets_NC`: one column per label, 1 for the rows with this
    label; or one column of values. Constant columns are ignored."""
    u_NR, sizes_R, _ = np.linalg.svd(np.asarray(features_ND, dtype=np.float64), full_matrices=False)
    kept = sizes_R > sizes_R[0] * 1e-10
    # The evidence does not depend on the scale of the features, but the bounds of the iteration do.
    squares_R = np.square(sizes_R[kept] / sizes_R[0])
    columns = [column for column in np.asarray(targets_NC, dtype=np.float64).T if np.ptp(column)]
    return float(np.mean([_evidence(u_NR[:, kept], squares_R, column, features_ND.shape[1]) for column in columns]))


def _evidence(u_NR: Floats, squares_R: Floats, targets_N: Floats, features: int) -> float:
    """log p(y | F, alpha, beta) / N at its maximum, from left singular vectors and squared singular values of F."""
    count = len(targets_N)
    along_R = u_NR.T @ targets_N
    # The part of y outside of the column space of F.
    outside = max(0.0, float(targets_N @ targets_N - along_R @ along_R))

    def fit(ratio: float) -> tuple[float, float]:
        """Squares of the weights and of the errors at this alpha / beta."""
        weights = float((squares_R * np.square(along_R / (squares_R + ratio))).sum())
        return weights, float(np.square(ratio * along_R / (squares_R + ratio)).sum()) + outside

    alpha = beta = 1.0
    for _ in range(STEPS):
        ratio = alpha / beta
        gamma = float((squares_R / (squares_R + ratio)).sum())
        weights, error = fit(ratio)
        alpha, beta = max(LEAST, gamma) / max(LEAST, weights), max(LEAST, count - gamma) / max(LEAST, error)
        if abs(alpha / beta - ratio) <= TOLERANCE * ratio:
            break
    weights, error = fit(alpha / beta)
    determinant = float(np.log(alpha + beta * squares_R).sum()) + (features - len(squares_R)) * math.log(alpha)
    total = count * math.log(beta / (2 * math.pi)) + features * math.log(alpha) - beta * error - alpha * weights
    return (total - determinant) / 2 / count
