"""Logistic regression on soft targets with weights, by L-BFGS. Products with float32 features are in float32.

Shapes: M rows, F features, C labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Linear:
    """A linear model of C logits.

    Attributes:
        weight: (C, F).
        bias: (C,).
    """

    weight: Array
    bias: Array

    def logits(self, x: Any) -> Array:
        """(M, F), dense or sparse -> (M, C)."""
        return np.asarray(x @ self.weight.T + self.bias)


def probabilities(logits: Array, *, exclusive: bool) -> Array:
    """(M, C) probabilities: of the labels of a row together, or of each label independently."""
    return np.asarray(softmax(logits, axis=1) if exclusive else expit(logits))


def fit(
    x: Any,
    targets: Array,
    weights: Array,
    *,
    penalty: float,
    exclusive: bool,
    steps: int,
    start: Linear | None = None,
) -> Linear:
    """Minimise sum_i weights_i loss_i + penalty / 2 |W|^2 over W and b, as scikit-learn's LogisticRegression with
    C = 1 / penalty: of two exclusive labels, W is the difference of their weights.

    The loss of a row is the cross entropy of its targets with a softmax of the logits, or the sum of the C binary cross
    entropies.

    Args:
        x: (M, F), dense or sparse.
        targets: (M, C) probabilities.
        weights: (M,), at least 0.
        penalty: of the squared weights of a label.
        exclusive: whether a row has one label.
        steps: maximum number of iterations.
        start: where to start; None: at 0.
    """
    labels, features = targets.shape[1], x.shape[1]
    scale = weights[:, None]
    size = labels * features
    if exclusive and (targets.sum(0) > 0).sum() == 2:
        penalty *= 2  # the square of the difference is twice the sum of the squares
    # Mixed products would convert all features at every iteration.
    kind = np.float32 if x.dtype == np.float32 else np.float64

    def objective(flat: Array) -> tuple[float, Array]:
        weight, bias = flat[:size].reshape(labels, features), flat[size:]
        logits = np.asarray(x @ weight.T.astype(kind), dtype=np.float64) + bias
        if exclusive:
            found = log_softmax(logits, axis=1)
            loss = -(scale * targets * found).sum()
            difference = scale * (np.exp(found) * targets.sum(1, keepdims=True) - targets)
        else:
            # log(1 + exp(z)) - t z
            loss = (scale * (np.logaddexp(0, logits) - targets * logits)).sum()
            difference = scale * (expit(logits) - targets)
        gradient = np.asarray(x.T @ difference.astype(kind), dtype=np.float64).T + penalty * weight
        return float(loss + penalty / 2 * (weight**2).sum()), np.concatenate([gradient.ravel(), difference.sum(0)])

    begin = np.zeros(size + labels) if start is None else np.concatenate([start.weight.ravel(), start.bias])
    solved = minimize(objective, begin, jac=True, method="L-BFGS-B", options={"maxiter": steps, "gtol": 1e-5})
    return Linear(solved.x[:size].reshape(labels, features), solved.x[size:])
