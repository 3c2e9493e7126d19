"""Linear models on word features, as arrays: what is stored is what predicts, in training and in serving.

Shapes: N rows, F features, C labels, K linear functions.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from components.data.tasks.data import Labels, Target, one_hot

#: Maximum number of iterations of the solvers.
ITERATIONS: Final = 1000
#: Relative residual at which ridge regression is solved.
RESIDUAL: Final = 1e-8


@dataclass(frozen=True)
class LinearModel:
    """Probabilities of C labels.

    Attributes:
        weights: (K, F).
        intercepts: (K,).
        classes: indices of the labels that the functions are about. Exclusive labels: ascending, K of them, or two if
            K = 1, the second of which the function is about. Independent labels: K of them.
        usual: (C,) probabilities of the other labels: 1 for one that all training rows have, otherwise 0.
        exclusive: whether a row has one label: softmax over the functions, otherwise a sigmoid of each.
    """

    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    classes: NDArray[np.int64]
    usual: NDArray[np.float32]
    exclusive: bool

    def probabilities(self, features: Any) -> NDArray[np.float32]:
        """(N, F) features -> (N, C). A row does not depend on the others."""
        result = np.tile(self.usual, (features.shape[0], 1))
        if not len(self.classes):
            return result
        values = features @ self.weights.T + self.intercepts
        if self.exclusive and len(self.classes) > 2:
            values = np.exp(values - values.max(1, keepdims=True))
            result[:, self.classes] = values / values.sum(1, keepdims=True)
        elif self.exclusive:
            right = expit(values[:, 0])
            result[:, self.classes] = np.stack([1 - right, right], axis=1)
        else:
            result[:, self.classes] = expit(values)
        return result

    answers = probabilities

    def logits(self, features: Any) -> NDArray[np.float64]:
        """(N, F) features -> (N, C) logits; 0 for labels without a function. Of two exclusive labels, the first has
        logit 0."""
        result = np.zeros((features.shape[0], len(self.usual)))
        if len(self.classes):
            values = features @ self.weights.T + self.intercepts
            result[:, self.classes[-values.shape[1] :]] = values
        return result

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        exclusive = np.asarray([self.exclusive], dtype=np.uint8)
        return {
            "weights": np.ascontiguousarray(self.weights),
            "intercepts": self.intercepts,
            "classes": self.classes,
            "usual": self.usual,
            "exclusive": exclusive,
        }


@dataclass(frozen=True)
class LinearFunction:
    """A linear function to a number.

    Attributes:
        weights: (1, F).
        intercepts: (1,).
    """

    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]

    def answers(self, features: Any) -> NDArray[np.float32]:
        """(N, F) features -> (N, 1) values. A row does not depend on the others."""
        values = features @ self.weights.T + self.intercepts
        return np.asarray(values, dtype=np.float32)

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        return {"weights": np.ascontiguousarray(self.weights), "intercepts": self.intercepts}


def load_linear(arrays: dict[str, NDArray[Any]], *, features: int, labels: int) -> LinearModel | LinearFunction:
    """The linear model whose arrays these are: a function has no classes.

    Raises:
        KeyError, ValueError: an array is missing, or has the wrong shape.
    """
    weights, intercepts, functions = arrays["weights"], arrays["intercepts"], 1
    model: LinearModel | LinearFunction = LinearFunction(weights, intercepts)
    if "classes" in arrays:
        classes, usual, exclusive = arrays["classes"], arrays["usual"], bool(arrays["exclusive"][0])
        model = LinearModel(weights, intercepts, classes, usual, exclusive)
        functions = 1 if exclusive and len(classes) == 2 else len(classes)
        if usual.shape != (labels,):
            raise ValueError(f"probabilities of shape {usual.shape} for {labels} labels")
    if (weights.shape, intercepts.shape) != ((functions, features), (functions,)):
        raise ValueError(f"weights of shape {weights.shape} for {functions} functions of {features} features")
    return model


def fit_ridge(features: Any, targets: Sequence[Target], *, penalty: float, scaled: bool = False) -> LinearFunction:
    """Ridge regression: the minimum of sum (w x + b - y)^2 + penalty |w|^2.

    Args:
        features: (N, F), sparse.
        targets: N vectors [value].
        penalty: strength of the L2 penalty.
        scaled: whether the weights are multiplied by `left_out_slope`.
    """
    values = np.asarray([target[0] for target in targets], dtype=np.float64)
    # Conjugate gradients on sparse features; the features are not centred, which would make them dense.
    estimator = Ridge(alpha=penalty, solver="sparse_cg", tol=RESIDUAL, max_iter=ITERATIONS)
    weights = np.atleast_2d(_fit(estimator, features, values).coef_)
    if scaled:
        weights = weights * left_out_slope(features, values, penalty=penalty)
    intercept = values.mean() - np.asarray(features.mean(0)).ravel() @ weights[0]
    return LinearFunction(weights, np.atleast_1d(np.float64(intercept)))


def left_out_slope(features: Any, values: NDArray[np.float64], *, penalty: float) -> float:
    """The slope of the values on the predictions of ridge regressions without the row, all relative to the mean of the
    other rows; at least 0, and 1 with fewer than 3 rows.

    Texts have few words in common, so predictions for other texts lie too close to the mean, whatever the penalty is.
    The residual of a row that is left out is its residual in the fit with it, divided by 1 - its leverage.

    Args:
        features: (N, F), sparse.
        values: (N,).
        penalty: strength of the L2 penalty.
    """
    count = len(values)
    if count < 3:
        return 1.0
    gram = np.asarray((features @ features.T).todense(), dtype=np.float64)
    gram += gram.mean() - gram.mean(0) - gram.mean(1)[:, None]
    inverse = penalty * np.linalg.inv(gram + penalty * np.eye(count))
    centred = values - values.mean()
    residuals = (inverse @ centred) / (inverse.diagonal() - 1 / count)
    deviations = centred * count / (count - 1)
    predicted = deviations - residuals
    square = float(predicted @ predicted)
    return max(0.0, float(deviations @ predicted) / square) if square > 0 else 1.0


def fit_exclusive(features: Any, labels: Labels, count: int, *, c: float) -> LinearModel:
    """Fit a multinomial logistic regression.

    Args:
        features: (N, F).
        labels: (N,) indices; labels without rows have probability 0.
        count: C.
        c: inverse strength of the L2 penalty.
    """
    return _fitted(LogisticRegression(C=c, max_iter=ITERATIONS), features, labels, count)


def fit_margin(features: Any, labels: Labels, count: int, *, c: float) -> LinearModel:
    """A linear support vector machine; a softmax (two classes: a sigmoid) of its distances from the hyperplanes gives
    uncalibrated probabilities. Arguments as of `fit_exclusive`."""
    return _fitted(LinearSVC(C=c, max_iter=ITERATIONS, random_state=0), features, labels, count)


def fit_independent(features: Any, targets: Sequence[Target], count: int, *, c: float) -> LinearModel:
    """One logistic regression per label, with the same strength of the penalty.

    Args:
        features: (N, F).
        targets: N vectors of label indices.
        count: C.
        c: inverse strength of the L2 penalty.
    """
    given = one_hot(targets, labels=count) > 0
    varies = np.flatnonzero(given.any(0) & ~given.all(0))
    models = [_fit(LogisticRegression(C=c, max_iter=ITERATIONS), features, given[:, label]) for label in varies]
    return LinearModel(
        weights=np.concatenate([model.coef_ for model in models] or [np.zeros((0, features.shape[1]))]),
        intercepts=np.concatenate([model.intercept_ for model in models] or [np.zeros(0)]),
        classes=varies.astype(np.int64),
        usual=np.asarray(given.all(0), dtype=np.float32),
        exclusive=False,
    )


def _fitted(estimator: Any, features: Any, labels: Labels, count: int) -> LinearModel:
    classes, usual = np.unique(labels), np.zeros(count, dtype=np.float32)
    if len(classes) < 2:
        # Nothing to tell apart, which the estimators refuse.
        usual[classes] = 1
        return LinearModel(np.zeros((0, features.shape[1])), np.zeros(0), classes[:0], usual, exclusive=True)
    model = _fit(estimator, features, labels)
    return LinearModel(
        weights=model.coef_,
        intercepts=np.atleast_1d(model.intercept_),
        classes=model.classes_.astype(np.int64),
        usual=usual,
        exclusive=True,
    )


def _fit(estimator: Any, features: Any, labels: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(features, labels)
