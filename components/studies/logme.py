"""How well an encoder suits a task, before fine-tuning: LogME (You et al. 2021), the evidence of the labels given the
hidden states.

Shape suffixes: N rows, F features, R rank, C labels, G values of r.
"""

import numpy as np
from numpy.typing import NDArray


def logme(vectors_NF: NDArray[np.floating], labels_N: NDArray[np.int64]) -> float:
    """The maximum log evidence in nats per row, mean over the labels that occur.

    A linear model y = F w + noise with w ~ N(0, 1/alpha) and noise ~ N(0, 1/beta), where y is 1 for the rows of a
    label, has the evidence p(y | F, alpha, beta). With r = alpha / beta, U and s of the SVD of F, and the best beta,

        log p / N = -(log(2 pi m) + 1) / 2 - sum log(1 + s^2 / r) / 2N,    m = (|y|^2 - sum s^2 (U y)^2 / (s^2 + r)) / N
    """
    u_NR, sizes_R, _ = np.linalg.svd(vectors_NF.astype(np.float64), full_matrices=False)
    y_NC, count = (labels_N[:, None] == np.unique(labels_N)).astype(np.float64), len(labels_N)
    # The evidence does not depend on the scale of the vectors, but the values of r do.
    squares_R, ratios_G1 = np.square(sizes_R / max(sizes_R[0], 1e-300)), np.exp(np.linspace(-30, 30, 1201))[:, None]
    m_GC = (y_NC.sum(0) - squares_R / (squares_R + ratios_G1) @ np.square(u_NR.T @ y_NC)) / count
    lost_GC = np.log(2 * np.pi * np.maximum(m_GC, 1e-12)) + np.log1p(squares_R / ratios_G1).sum(1)[:, None] / count
    return float(-(lost_GC.min(0).mean() + 1) / 2)
