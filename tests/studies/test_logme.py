"""LogME against the marginal likelihood, maximised by another method."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from components.studies.logme import logme


def best_evidence(features: np.ndarray, targets: np.ndarray) -> float:
    """max over alpha, beta of log N(y; 0, I / beta + F F^T / alpha) / N, with the weights integrated out."""

    def negative(logarithms: np.ndarray) -> float:
        alpha, beta = np.exp(logarithms)
        covariance = np.eye(len(targets)) / beta + features @ features.T / alpha
        return -float(multivariate_normal(cov=covariance).logpdf(targets)) / len(targets)

    starts = [np.array([a, b]) for a in (-2.0, 2.0) for b in (-2.0, 2.0)]
    return -min(
        minimize(negative, start, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10}).fun for start in starts
    )


@pytest.mark.parametrize(("rows", "features"), [(30, 5), (12, 20)])
def test_logme_is_the_maximum_of_the_evidence(rows: int, features: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, features))
    y = np.eye(3)[(x[:, 0] + 0.3 * rng.normal(size=rows) > 0).astype(int) + (x[:, 1] > 1)]
    expected = np.mean([best_evidence(x, column) for column in y.T])
    assert logme(x, y) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 500.0, 1e5])
def test_logme_does_not_depend_on_the_scale_of_the_features(scale: float) -> None:
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(34, 15)), np.eye(2)[rng.integers(0, 2, size=34)]
    assert logme(scale * x, y) == pytest.approx(logme(x, y), abs=1e-6)
    assert logme(np.zeros((34, 15)), y) < logme(x, y) + 1e-6
