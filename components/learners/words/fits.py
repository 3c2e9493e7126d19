"""Fits of linear models on word features. scikit-learn is imported by the first fit: its import takes seconds.

Shapes: N rows, F features, C labels.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.data.tasks.data import Labels, Target, one_hot
from components.learners.words.linear import LinearFunction, LinearModel

#: Maximum number of iterations of the solvers.
ITERATIONS: Final = 1000
#: Maximum number of rows with which logistic regression is fitted in the space of the rows.
MOST_ROTATED: Final = 1000
#: Relative residual at which ridge regression is solved.
RESIDUAL: Final = 1e-8
#: Smallest eigenvalue of the rows' products that counts, as a share of the largest one.
EIGENVALUE: Final = 1e-12


def fit_ridge(features: Any, targets: Sequence[Target], *, penalty: float, scaled: bool = False) -> LinearFunction:
    """Ridge regression: the minimum of sum (w x + b - y)^2 + penalty |w|^2, on sparse features (N, F). With `scaled`,
    the weights are multiplied by `left_out_slope`."""
    from sklearn.linear_model import Ridge

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
        features: (N, F), or `Regressions` on them, which several fits share.
        labels: (N,) indices; labels without rows have probability 0.
        count: C.
        c: inverse strength of the L2 penalty.
    """
    rows = regressions_on(features)
    return _fitted(lambda _, labels: rows.regression(labels, c=c), rows, labels, count)


def fit_margin(features: Any, labels: Labels, count: int, *, c: float) -> LinearModel:
    """A linear support vector machine; a softmax (two classes: a sigmoid) of twice its distances from the hyperplanes
    gives uncalibrated probabilities (the logits of an additive model: Friedman, Hastie and Tibshirani 2000). Arguments
    as of `fit_exclusive`."""
    from sklearn.svm import LinearSVC

    svm = LinearSVC(C=c, max_iter=ITERATIONS, random_state=0)
    return _fitted(partial(_fit, svm), features, labels, count).tempered(0.5)


def fit_independent(features: Any, targets: Sequence[Target], count: int, *, c: float) -> LinearModel:
    """One logistic regression per label, with the same penalty; `targets`: N vectors of label indices."""
    given = one_hot(targets, labels=count) > 0
    varies = np.flatnonzero(given.any(0) & ~given.all(0))
    rows = regressions_on(features)
    models = [rows.regression(given[:, label], c=c) for label in varies]
    return LinearModel(
        weights=np.concatenate([model.coef_ for model in models] or [np.zeros((0, features.shape[1]))]),
        intercepts=np.concatenate([model.intercept_ for model in models] or [np.zeros(0)]),
        classes=varies.astype(np.int64),
        usual=np.asarray(given.all(0), dtype=np.float32),
        exclusive=False,
    )


def _fitted(fit: Callable[..., Any], features: Any, labels: Labels, count: int) -> LinearModel:
    classes, usual = np.unique(labels), np.zeros(count, dtype=np.float32)
    if len(classes) < 2:
        # Nothing to tell apart, which the estimators refuse.
        usual[classes] = 1
        return LinearModel(np.zeros((0, features.shape[1])), np.zeros(0), classes[:0], usual, exclusive=True)
    model = fit(features, labels)
    return LinearModel(
        weights=model.coef_,
        intercepts=np.atleast_1d(model.intercept_),
        classes=model.classes_.astype(np.int64),
        usual=usual,
        exclusive=True,
    )


def logistic(
    x: Any,
    labels: Labels,
    count: int,
    *,
    c: float,
    steps: int = ITERATIONS,
    weights: NDArray[Any] | None = None,
    rest: float = 1.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weights (C, F) and the bias (C,) of the logits of a multinomial logistic regression.

    Labels without rows have the lowest bias less `rest`; one label alone is always predicted. `x`: (N, F), dense;
    `labels`: (N,); `count`: C; `weights`: (N,) of the rows."""
    from sklearn.linear_model import LogisticRegression

    present = np.unique(labels)
    weight, bias = np.zeros((1, x.shape[1])), np.zeros(1)
    if len(present) > 1:
        model = _fit(LogisticRegression(C=c, max_iter=steps), x, labels, weights)
        weight, bias = model.coef_, model.intercept_
    if len(present) == 2:
        # For two labels scikit-learn returns the log-odds of the second.
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    all_weights, all_bias = np.zeros((count, x.shape[1])), np.full(count, bias.min() - rest)
    all_weights[present], all_bias[present] = weight, bias
    return all_weights, all_bias


class Regressions:
    """The (N, F) features of rows, to which logistic regressions are fitted that differ in penalty and weights.

    With few rows they are fitted in an orthonormal basis of the rows' span, equal up to rounding.
    """

    def __init__(self, features: Any) -> None:
        self.features, self.shape = features, features.shape

    @cached_property
    def _spanned(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """(N, R) eigenvectors of the rows' products, and the roots of their (R,) eigenvalues; None: as it is."""
        count, width = self.shape
        if count > MOST_ROTATED or width < 3 * count:
            return None
        products = self.features @ self.features.T
        eigenvalues, vectors = np.linalg.eigh(products.toarray() if sparse.issparse(products) else products)
        spanned = eigenvalues > max(EIGENVALUE * eigenvalues[-1], 0)
        # Without any, no row has a word.
        return (vectors[:, spanned], np.sqrt(eigenvalues[spanned])) if spanned.any() else None

    def regression(self, labels: Any, *, c: float) -> Any:
        """The fitted LogisticRegression, with `coef_` for the F features."""
        from sklearn.linear_model import LogisticRegression

        estimator = LogisticRegression(C=c, max_iter=ITERATIONS)
        if self._spanned is None:
            return _fit(estimator, self.features, labels)
        vectors, lengths = self._spanned
        _fit(estimator, vectors * lengths, labels)
        estimator.coef_ = np.asarray((estimator.coef_ / lengths @ vectors.T) @ self.features)
        return estimator


def regressions_on(features: Any) -> Regressions:
    return features if isinstance(features, Regressions) else Regressions(features)


def _fit(estimator: Any, features: Any, labels: Any, weights: Any = None) -> Any:
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(features, labels, sample_weight=weights)
