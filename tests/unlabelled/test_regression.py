"""Logistic regression on soft targets: against scikit-learn, and a closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logit
from sklearn.linear_model import LogisticRegression

from components.unlabelled.regression import fit, probabilities


def data(labels: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 5)), rng.integers(labels, size=60)


def test_exclusive_labels_with_weights_are_those_of_scikit_learn() -> None:
    x, y = data(3)
    weights = np.linspace(0.1, 2, 60)
    expected = LogisticRegression(C=1 / 0.7, tol=1e-10, max_iter=5000).fit(x, y, sample_weight=weights)
    for features in (x, sparse.csr_matrix(x)):
        found = fit(features, np.eye(3)[y], weights, penalty=0.7, exclusive=True, steps=2000)
        np.testing.assert_allclose(
            probabilities(found.logits(features), exclusive=True), expected.predict_proba(x), atol=1e-4
        )


def test_two_labels_have_the_penalty_of_scikit_learn() -> None:
    x, y = data(2)
    expected = LogisticRegression(C=1 / 3, tol=1e-10, max_iter=5000).fit(x, y)
    found = fit(x, np.eye(2)[y], np.ones(60), penalty=3, exclusive=True, steps=2000)
    np.testing.assert_allclose(probabilities(found.logits(x), exclusive=True), expected.predict_proba(x), atol=1e-4)


def test_independent_labels_are_one_regression_each() -> None:
    x, y = data(4)
    targets = np.stack([y % 2, y // 2], axis=1).astype(float)
    found = probabilities(
        fit(x, targets, np.ones(60), penalty=0.5, exclusive=False, steps=2000).logits(x), exclusive=False
    )
    for label in range(2):
        one = LogisticRegression(C=1 / 0.5, tol=1e-10, max_iter=5000).fit(x, targets[:, label])
        np.testing.assert_allclose(found[:, label], one.predict_proba(x)[:, 1], atol=1e-4)


def test_soft_targets_without_features_are_their_weighted_mean() -> None:
    x, targets = np.zeros((2, 1)), np.array([[0.9, 0.1], [0.3, 0.7]])
    found = fit(x, targets, np.array([1.0, 3.0]), penalty=1, exclusive=True, steps=100)
    np.testing.assert_allclose(probabilities(found.logits(x[:1]), exclusive=True), [[0.45, 0.55]], atol=1e-5)
    found = fit(x, targets, np.array([1.0, 3.0]), penalty=1, exclusive=False, steps=100)
    assert found.bias == pytest.approx(logit([0.45, 0.55]), abs=1e-4)
