"""Self-training: regression on soft targets against scikit-learn, calibration and selection by hand, and the rounds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logit
from sklearn.linear_model import LogisticRegression

from components.learners.unlabelled import self_training
from components.learners.unlabelled.self_training import (
    Round,
    View,
    fit,
    probabilities,
    rounds,
    select,
    teach,
)


def data(labels: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 5)), rng.integers(labels, size=60)


@pytest.mark.parametrize("labels", [2, 3])
def test_exclusive_labels_with_weights_are_those_of_scikit_learn(labels):
    x, y = data(labels)
    weights = np.linspace(0.1, 2, 60)
    expected = LogisticRegression(C=1 / 0.7, tol=1e-10, max_iter=5000).fit(x, y, sample_weight=weights)
    actual = fit(x, np.eye(labels)[y], weights, penalty=0.7, exclusive=True)
    np.testing.assert_allclose(probabilities(actual.logits(x), exclusive=True), expected.predict_proba(x), atol=1e-3)


def test_independent_labels_are_one_regression_each():
    x, y = data(4)
    targets = np.stack([y % 2, y // 2], axis=1).astype(float)
    actual = probabilities(fit(x, targets, np.ones(60), penalty=0.5, exclusive=False).logits(x), exclusive=False)
    for label in range(2):
        single = LogisticRegression(C=1 / 0.5, tol=1e-10, max_iter=5000).fit(x, targets[:, label])
        np.testing.assert_allclose(actual[:, label], single.predict_proba(x)[:, 1], atol=1e-3)


def test_a_label_without_rows_is_never_answered_and_one_label_alone_always():
    x, y = data(2)
    absent = fit(x, np.eye(3)[y], np.ones(60), penalty=1, exclusive=True).logits(x)
    assert (absent.argmax(1) < 2).all()
    alone = fit(x, np.eye(3)[y * 0 + 1], np.ones(60), penalty=1, exclusive=True).logits(x)
    assert (alone.argmax(1) == 1).all()
    either = fit(x, np.tile([0.0, 1.0], (60, 1)), np.ones(60), penalty=1, exclusive=False).logits(x)
    assert (either[:, 0] < 0).all() and (either[:, 1] > 0).all()


def test_every_class_gets_its_most_confident_rows_and_the_weight_of_its_labelled_rows():
    first = np.array([0.95, 0.9, 0.85, 0.8, 0.45, 0.3])
    teacher = np.stack([first, 1 - first], axis=1)
    labelled = np.array([[1.0, 0], [1, 0], [0, 1]])
    rows, targets, weights = select(teacher, labelled, exclusive=True, share=2 / 3)
    # Two rows of each class at most; of the second class one is sure enough.
    assert rows.tolist() == [0, 1, 5]
    assert targets.tolist() == [[1, 0], [1, 0], [0, 1]]
    # Above chance 0.9 and 0.8 of the first class, for its two labelled rows.
    np.testing.assert_allclose(weights, [2 * 0.9 / 1.7, 2 * 0.8 / 1.7, 1.0])


def test_rows_with_several_labels_are_chosen_by_their_mean_confidence():
    teacher = np.array([[0.9, 0.1], [0.5, 0.9], [0.6, 0.5], [0.99, 0.99]])
    rows, targets, weights = select(teacher, np.ones((3, 2)), exclusive=False, share=0.75)
    assert rows.tolist() == [0, 1, 3]
    assert targets.tolist() == [[1, 0], [0, 1], [1, 1]]
    np.testing.assert_allclose(weights, 3 * np.array([0.8, 0.4, 0.98]) / 2.18)


def clusters(count: int, *, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes in 10 dimensions; their means differ in the first."""
    rng = np.random.default_rng(1)
    y = np.arange(count) % 2
    x = rng.normal(size=(count, 10)) * spread
    x[:, 0] += 4 * y - 2
    return x, y


def accuracy(found: Round, x: np.ndarray, y: np.ndarray, view: int = 0) -> float:
    return float((found.models[view].logits(x).argmax(1) == y).mean())


def test_clusters_are_found_from_few_labels():
    x, y = clusters(600, spread=1.5)
    targets, free = np.eye(2)[y[:6]], x[6:]
    alone = fit(x[:6], targets, np.ones(6), penalty=1.0, exclusive=True)
    start, *actual = rounds([View(x[:6], free, [1.0])], targets, exclusive=True)
    np.testing.assert_allclose(start.models[0].weight, alone.weight)
    assert len(actual) == 3
    before = (alone.logits(free).argmax(1) == y[6:]).mean()
    assert accuracy(actual[-1], free, y[6:]) > before + 0.02
    sizes = [single.pseudo_labels for single in actual]
    assert sizes == sorted(sizes) and sizes[0] <= 200


@pytest.mark.parametrize("exclusive", [True, False])
def test_views_teach_each_other_and_the_same_rounds_come_again(exclusive):
    x, y = clusters(400)
    other = np.stack([x[:, 0], np.ones(400)], axis=1)
    targets = np.eye(2)[y[:8]]
    views = [
        View(x[:8, 1:], x[8:, 1:], [1.0]),
        View(other[:8], other[8:], [0.1, 1.0]),
    ]
    first, second = (list(rounds(views, targets, exclusive=exclusive)) for _ in range(2))
    # The first view knows nothing of the classes, and the second keeps what it knows.
    assert accuracy(first[-1], other[8:], y[8:], view=1) > 0.9
    for single, two in zip(first, second, strict=True):
        for left, right in zip(single.models, two.models, strict=True):
            np.testing.assert_array_equal(left.weight, right.weight)


def test_without_pseudo_labels_a_round_is_the_fit_of_the_labelled_rows(monkeypatch):
    x, y = clusters(40)
    targets = np.eye(2)[y[:10]]
    monkeypatch.setattr(self_training, "CONFIDENCE", 1.0)
    _, actual, *_ = rounds([View(x[:10], x[10:] * 0, [1.0])], targets, exclusive=True)
    alone = fit(x[:10], targets, np.ones(10), penalty=1.0, exclusive=True)
    assert actual.pseudo_labels == 0
    np.testing.assert_allclose(actual.models[0].weight, alone.weight, atol=1e-3)


def test_the_teacher_is_the_mean_of_calibrated_probabilities():
    first, second = np.array([[2 * logit(0.8)]]), np.array([[logit(0.6)]])
    np.testing.assert_allclose(teach([first, second], [2.0, 1.0], exclusive=False), [[0.7]])


def test_no_row_is_sure_enough():
    for exclusive in (True, False):
        rows, targets, weights = select(np.full((4, 2), 0.5), np.eye(2), exclusive=exclusive, share=1)
        assert len(rows) == len(weights) == 0 and targets.shape == (0, 2)
