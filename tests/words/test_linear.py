"""Linear models: the probabilities of scikit-learn, stored and loaded without a changed bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from components.learners.words.linear import LinearModel, fit_labels, fit_logits, fit_ridge, left_out_slope, spanned


def made(rows: int, features: int) -> sparse.csr_matrix:
    return sparse.random(rows, features, density=0.4, format="csr", random_state=0)


def given(labels, classes: int) -> np.ndarray:
    return np.eye(classes)[np.asarray(labels)]


def fitted(x, given, *, c: float = 10.0, exclusive: bool = True, margin: bool = False) -> LinearModel:
    return fit_labels(spanned(x), given, c=c, exclusive=exclusive, margin=margin)


@pytest.mark.parametrize("classes", [2, 5])
def test_labels_are_those_of_scikit_learn(classes):
    x, labels = made(40, 12), np.arange(40) % classes
    expected = LogisticRegression(C=10.0, max_iter=1000).fit(x, labels).predict_proba(x).astype(np.float32)
    np.testing.assert_array_equal(fitted(x, given(labels, classes)).answers(x), expected)
    distances = 2 * LinearSVC(C=0.1, max_iter=1000, random_state=0).fit(x, labels).decision_function(x)
    expected = softmax(distances, axis=1) if classes > 2 else np.stack([1 - expit(distances), expit(distances)], axis=1)
    actual = fitted(x, given(labels, classes), c=0.1, margin=True).answers(x)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("classes", [2, 4])
def test_few_rows_of_many_features_have_the_weights_of_all_features(classes):
    rng = np.random.default_rng(0)
    features = sparse.random(12, 300, density=0.1, random_state=0, format="csr")
    features.data[features.indptr[3] : features.indptr[4]] = 0
    features = sparse.vstack([features[:5], features[4], features[6:]], format="csr")
    labels = np.r_[np.arange(classes), rng.integers(classes, size=12 - classes)]
    expected = LogisticRegression(C=10.0, max_iter=1000).fit(features, labels)
    for form in (features, features.toarray()):
        model = fitted(form, given(labels, classes))
        np.testing.assert_allclose(model.weights, expected.coef_, atol=1e-6)
        np.testing.assert_allclose(model.intercepts, expected.intercept_, atol=1e-6)
    assert not fitted(features * 0, given(labels, classes)).weights.any()


def test_labels_that_do_not_vary():
    x = made(40, 12)
    few = fitted(x, given(np.asarray([1, 3])[np.arange(40) % 2], 5), c=1.0).answers(x)
    assert not few[:, [0, 2, 4]].any()
    np.testing.assert_allclose(few.sum(1), 1, rtol=1e-6)
    assert fitted(x, given([2] * 40, 3)).answers(x[:2]).tolist() == [[0, 0, 1]] * 2
    several = np.stack([np.arange(40) % 2, np.arange(40) % 3 > 0, np.zeros(40), np.ones(40)], axis=1)
    actual = fitted(x, several, c=100.0, exclusive=False).answers(x)
    for label in (0, 1):
        alone = LogisticRegression(C=100.0, max_iter=1000).fit(x, several[:, label]).predict_proba(x)[:, 1]
        np.testing.assert_array_equal(actual[:, label], alone.astype(np.float32))
    assert not actual[:, 2].any() and (actual[:, 3] == 1).all()


@pytest.mark.parametrize("exclusive", [True, False])
def test_logits_with_weights_of_rows(exclusive):
    rng = np.random.default_rng(0)
    x, labels, weights = rng.normal(size=(60, 5)), rng.integers(3, size=60), np.linspace(0.1, 2, 60)
    actual = fit_logits(x, given(labels, 4), c=1 / 0.7, exclusive=exclusive, weights=weights, rest=10.0).values(x)
    model = LogisticRegression(C=1 / 0.7, tol=1e-10, max_iter=5000)
    if exclusive:
        expected = model.fit(x, labels, sample_weight=weights).predict_proba(x)
        np.testing.assert_allclose(softmax(actual[:, :3], axis=1), expected, atol=1e-3)
        assert (actual[:, 3] < actual[:, :3].min() + 5).all(), "a label without rows is never the best"
    else:
        expected = model.fit(x, labels == 1, sample_weight=weights).predict_proba(x)[:, 1]
        np.testing.assert_allclose(expit(actual[:, 1]), expected, atol=1e-3)
        assert (actual[:, 3] == -10).all()


@pytest.mark.parametrize("labels", [[0, 1] * 5, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0], [1] * 10])
def test_stored_and_loaded(labels):
    x = made(10, 6)
    model = fitted(x, given(labels, 4), c=1.0)
    loaded = LinearModel.load(model.dump(), features=6, labels=4)
    np.testing.assert_array_equal(loaded.answers(x), model.answers(x))
    with pytest.raises(ValueError, match="functions of 7 features"):
        LinearModel.load(model.dump(), features=7, labels=4)
    with pytest.raises(ValueError, match="for 3 labels"):
        LinearModel.load(model.dump(), features=6, labels=3)


def test_ridge_regression_solves_its_normal_equations():
    x, y = made(20, 30), np.random.default_rng(0).normal(5, 2, 20)
    actual = fit_ridge(x, y[:, None], penalty=0.5)
    centred = x.toarray() - x.toarray().mean(0)
    weights = np.linalg.solve(centred.T @ centred + 0.5 * np.eye(30), centred.T @ (y - y.mean()))
    np.testing.assert_allclose(actual.weights[0], weights, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(actual.answers(x)[:, 0], y.mean() + centred @ weights, rtol=1e-5)
    again = LinearModel.load(actual.dump(), features=30, labels=0)
    np.testing.assert_array_equal(again.answers(x), actual.answers(x))


def test_the_slope_is_that_on_the_predictions_of_rows_that_are_left_out():
    x = made(12, 30)
    y = x @ np.random.default_rng(0).normal(0, 1, 30) + 3
    predicted, deviations = [], []
    for row in range(12):
        others = np.flatnonzero(np.arange(12) != row)
        model = Ridge(alpha=0.5, solver="cholesky").fit(x[others].toarray(), y[others])
        predicted.append(model.predict(x[[row]].toarray())[0] - y[others].mean())
        deviations.append(y[row] - y[others].mean())
    slope = np.dot(predicted, deviations) / np.dot(predicted, predicted)
    assert slope > 0 and left_out_slope(x, y, penalty=0.5) == pytest.approx(slope)
    plain, scaled = (fit_ridge(x, y[:, None], penalty=0.5, scaled=scaled) for scaled in (False, True))
    np.testing.assert_allclose(scaled.weights, slope * plain.weights)
    assert scaled.answers(x).mean() == pytest.approx(y.mean()) == plain.answers(x).mean()
    assert left_out_slope(x[:2], y[:2], penalty=0.5) == left_out_slope(x, np.ones(12), penalty=0.5) == 1


@pytest.mark.parametrize("classes", [[0, 2], [0, 1, 3]])
def test_probabilities_by_hand_and_without_the_prior(classes):
    rng = np.random.default_rng(0)
    features, counts = rng.normal(size=(5, 3)), np.asarray([8, 4, 2, 1])
    several = LinearModel(rng.normal(size=(4, 3)), rng.normal(size=4))
    model = several.of_labels(given(classes, 4), exclusive=True)
    actual = model.answers(features)
    logits = features @ several.weights[classes].T + several.intercepts[classes]
    np.testing.assert_allclose(actual[:, classes], softmax(logits, axis=1), rtol=1e-5)
    np.testing.assert_allclose(softmax(model.logits(features)[:, classes], axis=1), actual[:, classes], rtol=1e-5)
    expected = actual.astype(np.float64)
    expected[:, classes] /= counts[classes] + 1
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(model.balanced(counts).answers(features), expected, atol=1e-6)
    # Equal numbers change nothing, to the last bit.
    np.testing.assert_array_equal(model.balanced(np.full(4, 7)).answers(features), actual)
    np.testing.assert_array_equal(replace(model, usual=actual[0]).tempered(1.0).answers(features), actual)
