"""Linear models: the probabilities of scikit-learn, stored and loaded without a changed bit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from components.learners.words.fits import fit_exclusive, fit_independent, fit_margin, fit_ridge, left_out_slope
from components.learners.words.linear import LinearFunction, LinearModel, load_linear


def made(rows: int, features: int, *, seed: int = 0) -> sparse.csr_matrix:
    return sparse.random(rows, features, density=0.4, format="csr", random_state=seed)


@pytest.mark.parametrize("classes", [2, 5])
def test_logistic_regression_is_that_of_scikit_learn(classes):
    x, labels = made(40, 12), np.arange(40) % classes
    expected = LogisticRegression(C=10.0, max_iter=1000).fit(x, labels).predict_proba(x).astype(np.float32)
    np.testing.assert_array_equal(fit_exclusive(x, labels, classes, c=10.0).probabilities(x), expected)


@pytest.mark.parametrize("classes", [2, 4])
def test_few_rows_of_many_features_have_the_weights_of_all_features(classes):
    rng = np.random.default_rng(0)
    features = sparse.random(12, 300, density=0.1, random_state=0, format="csr")
    features.data[features.indptr[3] : features.indptr[4]] = 0
    features = sparse.vstack([features[:5], features[4], features[6:]], format="csr")
    labels = np.r_[np.arange(classes), rng.integers(classes, size=12 - classes)]
    for form in (features, features.toarray()):
        fitted = fit_exclusive(form, labels, classes, c=10.0)
        expected = LogisticRegression(C=10.0, max_iter=1000).fit(features, labels)
        np.testing.assert_allclose(fitted.weights, expected.coef_, atol=1e-6)
        np.testing.assert_allclose(fitted.intercepts, expected.intercept_, atol=1e-6)
    without = fit_exclusive(features * 0, labels, classes, c=10.0)
    assert not without.weights.any()


def test_labels_without_rows_have_probability_zero():
    x, labels = made(40, 12), np.asarray([1, 3])[np.arange(40) % 2]
    actual = fit_exclusive(x, labels, 5, c=1.0).probabilities(x)
    assert not actual[:, [0, 2, 4]].any()
    np.testing.assert_allclose(actual.sum(1), 1, rtol=1e-6)


def test_independent_labels_are_one_regression_each():
    x = made(30, 8)
    targets = [np.asarray([row % 2, 3] if row % 3 else [3], dtype=np.float64) for row in range(30)]
    model = fit_independent(x, targets, 5, c=100.0)
    actual = model.probabilities(x)
    for label in (0, 1):
        given = [label in target for target in targets]
        alone = LogisticRegression(C=100.0, max_iter=1000).fit(x, given).predict_proba(x)[:, 1]
        np.testing.assert_array_equal(actual[:, label], alone.astype(np.float32))
    assert actual[:, 3].tolist() == [1.0] * 30, "all training rows have it"
    assert not actual[:, [2, 4]].any(), "none has it"


@pytest.mark.parametrize("classes", [2, 3])
def test_a_support_vector_machine(classes):
    x, labels = made(30, 8), np.arange(30) % classes
    distances = LinearSVC(C=0.1, max_iter=1000, random_state=0).fit(x, labels).decision_function(x)
    distances = 2 * distances  # the logits
    expected = softmax(distances, axis=1) if classes > 2 else np.stack([1 - expit(distances), expit(distances)], axis=1)
    np.testing.assert_allclose(fit_margin(x, labels, classes, c=0.1).probabilities(x), expected, rtol=1e-6)


@pytest.mark.parametrize("labels", [[0, 1] * 5, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0], [1] * 10])
def test_stored_and_loaded(labels):
    x = made(10, 6)
    model = fit_exclusive(x, np.asarray(labels), 4, c=1.0)
    loaded = load_linear(model.dump(), features=6, labels=4)
    assert isinstance(loaded, LinearModel)
    np.testing.assert_array_equal(loaded.probabilities(x), model.probabilities(x))
    with pytest.raises(ValueError, match="functions of 7 features"):
        load_linear(model.dump(), features=7, labels=4)
    with pytest.raises(ValueError, match="for 3 labels"):
        load_linear(model.dump(), features=6, labels=3)


def test_ridge_regression_solves_its_normal_equations():
    x, y = made(20, 30), np.random.default_rng(0).normal(5, 2, 20)
    actual = fit_ridge(x, y[:, None], penalty=0.5)
    centred = x.toarray() - x.toarray().mean(0)
    weights = np.linalg.solve(centred.T @ centred + 0.5 * np.eye(30), centred.T @ (y - y.mean()))
    np.testing.assert_allclose(actual.weights[0], weights, rtol=1e-5, atol=1e-8)
    expected = y.mean() + centred @ weights
    np.testing.assert_allclose(actual.answers(x)[:, 0], expected, rtol=1e-5)
    again = load_linear(actual.dump(), features=30, labels=0)
    assert isinstance(again, LinearFunction)
    np.testing.assert_array_equal(again.answers(x), actual.answers(x))
    with pytest.raises(ValueError, match=r"weights of shape \(1, 30\) for 1 functions of 29 features"):
        load_linear(actual.dump(), features=29, labels=0)


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


def test_one_label_in_training_is_always_predicted():
    model = fit_exclusive(made(4, 3), np.full(4, 2), 3, c=1.0)
    assert model.probabilities(made(2, 3)).tolist() == [[0, 0, 1], [0, 0, 1]]


def test_probabilities_by_hand():
    model = LinearModel(
        weights=np.asarray([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]),
        intercepts=np.asarray([0.0, 0.0, 1.0]),
        classes=np.asarray([0, 1, 3]),
        usual=np.zeros(4, dtype=np.float32),
        exclusive=True,
    )
    expected = np.exp([1.0, 4.0, 1.0]) / np.exp([1.0, 4.0, 1.0]).sum()
    actual = model.probabilities(sparse.csr_matrix([[1.0, 2.0]]))
    np.testing.assert_allclose(actual, [[expected[0], expected[1], 0, expected[2]]], rtol=1e-6)


@pytest.mark.parametrize("classes", [[0, 2], [0, 1, 3]])
def test_a_balanced_model_is_the_one_without_the_prior_by_hand(classes):
    rng = np.random.default_rng(0)
    features, counts = rng.normal(size=(5, 3)), np.asarray([8, 4, 2, 1])
    functions = 1 if len(classes) == 2 else len(classes)
    model = LinearModel(
        rng.normal(size=(functions, 3)), rng.normal(size=functions), np.asarray(classes), np.zeros(4, np.float32), True
    )
    expected = model.probabilities(features).astype(np.float64)
    expected[:, classes] /= counts[classes] + 1
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(model.balanced(counts).probabilities(features), expected, atol=1e-6)
    # Equal numbers change nothing, to the last bit.
    equal = model.balanced(np.full(4, 7)).probabilities(features)
    np.testing.assert_array_equal(equal, model.probabilities(features))
