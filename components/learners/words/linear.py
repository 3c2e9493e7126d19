"""Linear models on word features, as arrays: what is stored is what predicts, in training and in serving. scikit-learn
is imported by the first fit: its import takes seconds.

Shapes: N rows, F features, C labels, K linear functions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from components.data.tasks.data import Target

#: Maximum number of iterations of the solvers.
ITERATIONS: Final = 1000
#: Maximum number of rows with which logistic regression is fitted in the space of the rows.
MOST_ROTATED: Final = 1000
#: Relative residual at which ridge regression is solved.
RESIDUAL: Final = 1e-8
#: Smallest eigenvalue of the rows' products that counts, as a share of the largest one.
EIGENVALUE: Final = 1e-12


@dataclass(frozen=True)
class LinearModel:
    """K linear functions, which are the answer, or give the probabilities of C labels.

    Attributes:
        weights, intercepts: (K, F) and (K,).
        classes: indices of the labels that the functions are about, ascending if exclusive; two if K = 1, the second of
            which the function is about. None: the functions are the answer.
        usual: (C,) probabilities of the other labels: 1 for one that all training rows have, otherwise 0.
        exclusive: whether a row has one label: softmax over the functions, otherwise a sigmoid of each.
    """

    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    classes: NDArray[np.int64] | None = None
    usual: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    exclusive: bool = True

    def values(self, features: Any) -> NDArray[np.float64]:
        """(N, F) -> (N, K)."""
        return np.asarray(features @ self.weights.T) + self.intercepts

    def answers(self, features: Any) -> NDArray[np.float32]:
        """(N, F) -> (N, C), or (N, K) without labels. A row does not depend on the others."""
        if self.classes is None:
            return np.asarray(self.values(features), dtype=np.float32)
        result = np.tile(self.usual, (features.shape[0], 1))
        if not len(self.classes):
            return result
        values = self.values(features)
        if self.exclusive and len(self.classes) > 2:
            values = np.exp(values - values.max(axis=1, keepdims=True))
            result[:, self.classes] = values / values.sum(axis=1, keepdims=True)
        else:
            right = expit(values)
            result[:, self.classes] = np.hstack([1 - right, right]) if self.exclusive else right
        return result

    def logits(self, features: Any) -> NDArray[np.float64]:
        """(N, F) -> (N, C) logits; 0 for labels without a function, and for the first of two exclusive ones."""
        assert self.classes is not None
        result = np.zeros((features.shape[0], len(self.usual)))
        if len(self.classes):
            result[:, self.classes[-len(self.intercepts) :]] = self.values(features)
        return result

    def of_labels(self, given: NDArray[Any], *, exclusive: bool) -> LinearModel:
        """The probabilities of labels from their C logits. A label that all training rows have, or none, has no
        function. `given`: (N, C), whether a row has a label."""
        usual, varies = np.asarray(given.all(0), np.float32), np.flatnonzero(given.any(0) & ~given.all(0))
        weights, intercepts = self.weights[varies], self.intercepts[varies]
        if exclusive and len(varies) == 2:
            weights, intercepts = weights[1:] - weights[:1], intercepts[1:] - intercepts[:1]
        return LinearModel(weights, intercepts, varies, usual, exclusive)

    def tempered(self, temperature: float) -> LinearModel:
        return replace(self, weights=self.weights / temperature, intercepts=self.intercepts / temperature)

    def balanced(self, counts: NDArray[Any]) -> LinearModel:
        """The model of exclusive labels as if all were equally frequent: the logarithms of their (C,) numbers of
        training rows plus 1 are subtracted from the logits (Menon et al. 2021, "Long-tail learning via logit
        adjustment"; plus 1, since the share of a label with one row is hardly known). Weights of the rows would not do
        it: with few rows every fit separates them, whatever they weigh."""
        logs = np.log((counts[self.classes] + 1) / (counts.max() + 1))
        logs = logs[1:] - logs[:1] if len(logs) == 2 else logs
        return replace(self, intercepts=self.intercepts - logs)

    def dump(self) -> dict[str, NDArray[Any]]:
        arrays = {"weights": np.ascontiguousarray(self.weights), "intercepts": self.intercepts}
        if self.classes is None:
            return arrays
        exclusive = np.asarray([self.exclusive], dtype=np.uint8)
        return {**arrays, "classes": self.classes, "usual": self.usual, "exclusive": exclusive}

    @classmethod
    def load(cls, arrays: dict[str, NDArray[Any]], *, features: int, labels: int) -> LinearModel:
        """The model whose arrays these are. Raises KeyError, ValueError: one is missing, or has the wrong shape."""
        model, functions = cls(arrays["weights"], arrays["intercepts"]), 1
        if "classes" in arrays:
            classes, usual, exclusive = arrays["classes"], arrays["usual"], bool(arrays["exclusive"][0])
            model = replace(model, classes=classes, usual=usual, exclusive=exclusive)
            functions = 1 if exclusive and len(classes) == 2 else len(classes)
            if usual.shape != (labels,):
                raise ValueError(f"probabilities of shape {usual.shape} for {labels} labels")
        shape = model.weights.shape
        if (shape, model.intercepts.shape) != ((functions, features), (functions,)):
            raise ValueError(f"weights of shape {shape} for {functions} functions of {features} features")
        return model


def fit_logits(
    x: Any,
    given: NDArray[Any],
    *,
    c: float,
    exclusive: bool,
    margin: bool = False,
    steps: int = ITERATIONS,
    weights: NDArray[Any] | None = None,
    rest: float = 1.0,
) -> LinearModel:
    """The C logits of a multinomial logistic regression, or of one logistic regression per label.

    Exclusive labels without rows have the lowest intercept less `rest`; one label alone is always the best.

    Args:
        x: (N, F).
        given: (N, C), whether a row has a label.
        c: inverse strength of the L2 penalty.
        margin: of a linear support vector machine: twice its distances from the hyperplanes (the logits of an additive
            model: Friedman, Hastie and Tibshirani 2000), which are not calibrated.
        weights: (N,) of the rows.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if not exclusive:
        options: Any = {"c": c, "margin": margin, "steps": steps, "weights": weights, "rest": rest}
        each = [fit_logits(x, np.stack([column == 0, column > 0], 1), exclusive=True, **options) for column in given.T]
        pairs = [(model.weights[1] - model.weights[0], model.intercepts[1] - model.intercepts[0]) for model in each]
        several, biases = map(np.stack, zip(*pairs, strict=True))
        return LinearModel(several, biases)
    present = np.flatnonzero(given.any(0))
    weight, bias = np.zeros((1, x.shape[1])), np.zeros(1)
    if len(present) > 1:
        svm = LinearSVC(C=c, max_iter=steps, random_state=0) if margin else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = (svm or LogisticRegression(C=c, max_iter=steps)).fit(x, given.argmax(1), sample_weight=weights)
        weight, bias = model.coef_ * (1 + margin), np.atleast_1d(model.intercept_) * (1 + margin)
    if len(present) == 2:
        # For two labels scikit-learn returns the log-odds of the second.
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    result = LinearModel(np.zeros((given.shape[1], x.shape[1])), np.full(given.shape[1], bias.min() - rest))
    result.weights[present], result.intercepts[present] = weight, bias
    return result


def spanned(features: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The coordinates of (N, F) features of rows in which regressions are fitted, and the function from weights there
    to the weights of the F features. With few rows it is an orthonormal basis of the rows' span: the regressions are
    equal up to rounding."""
    count, width = features.shape
    if count <= MOST_ROTATED and width >= 3 * count:
        products = features @ features.T
        eigenvalues, vectors = np.linalg.eigh(products.toarray() if sparse.issparse(products) else products)
        kept = eigenvalues > max(EIGENVALUE * eigenvalues[-1], 0)
        # Without any, no row has a word.
        if kept.any():
            vectors, lengths = vectors[:, kept], np.sqrt(eigenvalues[kept])
            return vectors * lengths, lambda weights: np.asarray((weights / lengths @ vectors.T) @ features)
    return features, lambda weights: weights


def fit_labels(
    rows: tuple[Any, Callable[[Any], Any]], given: NDArray[Any], *, c: float, exclusive: bool, margin: bool = False
) -> LinearModel:
    """The probabilities of labels by `fit_logits` on rows in the coordinates of `spanned`."""
    x, weights_of = rows
    model = fit_logits(x, given, c=c, exclusive=exclusive, margin=margin).of_labels(given, exclusive=exclusive)
    return replace(model, weights=weights_of(model.weights))


def fit_ridge(features: Any, targets: Sequence[Target], *, penalty: float, scaled: bool = False) -> LinearModel:
    """Ridge regression: the minimum of sum (w x + b - y)^2 + penalty |w|^2, on sparse features (N, F). With `scaled`,
    the weights are multiplied by `left_out_slope`."""
    from sklearn.linear_model import Ridge

    values = np.asarray([target[0] for target in targets], dtype=np.float64)
    # Conjugate gradients on sparse features; the features are not centred, which would make them dense.
    estimator = Ridge(alpha=penalty, solver="sparse_cg", tol=RESIDUAL, max_iter=ITERATIONS)
    weights = np.atleast_2d(estimator.fit(features, values).coef_)
    if scaled:
        weights = weights * left_out_slope(features, values, penalty=penalty)
    intercept = values.mean() - np.asarray(features.mean(0)).ravel() @ weights[0]
    return LinearModel(weights, np.atleast_1d(np.float64(intercept)))


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
