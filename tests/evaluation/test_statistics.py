"""Scores from sums over rows, against hand-computed values and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from components.evaluation.statistics import (
    SCORES,
    Layout,
    calibration,
    confusion,
    per_class,
    resampled,
    row_statistics,
    scores,
)

LAYOUT = Layout(classes=3, bins=4)
LABELS = np.asarray([0, 0, 1, 1, 0])
PROBABILITIES = np.asarray(
    [[0.75, 0.25, 0.0], [0.4, 0.6, 0.0], [0.0, 1.0, 0.0], [0.7, 0.2, 0.1], [0.9, 0.1, 0.0]], dtype=np.float32
)


def totals(labels: np.ndarray = LABELS, probabilities: np.ndarray = PROBABILITIES, layout: Layout = LAYOUT):
    return row_statistics(labels, probabilities, layout=layout).sum(0)


def test_scores_by_hand() -> None:
    # Guesses 0 1 1 0 0: class 0 has 2 hits, 3 guesses, 3 true; class 1 has 1, 2, 2; class 2 does not occur.
    found = {name: float(value) for name, value in scores(totals(), layout=LAYOUT).items()}
    assert found["accuracy"] == found["micro_f1"] == pytest.approx(3 / 5)
    assert found["macro_f1"] == pytest.approx((4 / 6 + 2 / 4) / 2)
    # Two classes: (tp tn - fp fn) / sqrt(...) with tp 2, tn 1, fp 1, fn 1.
    assert found["mcc"] == pytest.approx((2 * 1 - 1 * 1) / np.sqrt(3 * 3 * 2 * 2))
    # Bins (0.5, 0.75]: 0.75 right, 0.6 wrong, 0.7 wrong; (0.75, 1]: 1.0 right, 0.9 right.
    assert found["ece"] == pytest.approx((abs(1 - 2.05) + abs(2 - 1.9)) / 5)


def test_calibration_curve_by_hand() -> None:
    assert calibration(totals(), layout=LAYOUT) == [
        {"low": 0.5, "high": 0.75, "rows": 3, "confidence": pytest.approx(2.05 / 3), "accuracy": pytest.approx(1 / 3)},
        {"low": 0.75, "high": 1.0, "rows": 2, "confidence": pytest.approx(0.95), "accuracy": 1.0},
    ]


def test_per_class_by_hand() -> None:
    found = per_class(totals(), layout=LAYOUT)
    assert found["precision"].tolist() == pytest.approx([2 / 3, 1 / 2, 0])
    assert found["recall"].tolist() == pytest.approx([2 / 3, 1 / 2, 0])
    assert found["rows"].tolist() == [3, 2, 0]


def test_confusion_has_true_labels_as_rows() -> None:
    assert confusion(LABELS, PROBABILITIES.argmax(1), classes=3).tolist() == [[2, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_scores_agree_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 400)
    probabilities = rng.dirichlet(np.ones(5), 400)
    probabilities[np.arange(400), labels] += 0.3
    probabilities = (probabilities / probabilities.sum(1, keepdims=True)).astype(np.float32)
    guesses = probabilities.argmax(1)
    layout = Layout(5, 15)
    found = scores(totals(labels, probabilities, layout), layout=layout)
    assert found["macro_f1"] == pytest.approx(metrics.f1_score(labels, guesses, average="macro"))
    assert found["micro_f1"] == pytest.approx(metrics.f1_score(labels, guesses, average="micro"))
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(labels, guesses))
    assert found["mcc"] == pytest.approx(metrics.matthews_corrcoef(labels, guesses))
    classes = per_class(totals(labels, probabilities, layout), layout=layout)
    expected = metrics.precision_recall_fscore_support(labels, guesses)
    for name, values in zip(("precision", "recall", "f1", "rows"), expected, strict=True):
        np.testing.assert_allclose(classes[name], values)


def test_one_guess_for_all_has_no_correlation() -> None:
    always = np.tile(np.asarray([[0.2, 0.8, 0.0]], dtype=np.float32), (5, 1))
    assert float(scores(totals(probabilities=always), layout=LAYOUT)["mcc"]) == 0.0


def test_draws_are_paired_and_have_the_right_spread() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 500)
    right = rng.random(500) < 0.8
    probabilities = np.zeros((500, 2), dtype=np.float32)
    probabilities[np.arange(500), np.where(right, labels, 1 - labels)] = 1
    layout = Layout(2, 2)
    rows = row_statistics(labels, probabilities, layout=layout)
    one, other = resampled([rows, rows], resamples=2000)
    assert one.shape == (2000, layout.width) and np.array_equal(one, other)
    drawn = scores(one, layout=layout)
    assert set(drawn) == set(SCORES)
    share = right.mean()
    assert drawn["accuracy"].std() == pytest.approx(np.sqrt(share * (1 - share) / 500), rel=0.1)
    assert drawn["accuracy"].mean() == pytest.approx(share, abs=0.002)
    assert np.array_equal(resampled([rows], resamples=2000)[0], one), "the same seed draws the same rows"


def test_draws_in_chunks_are_as_many_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.evaluation.statistics.CHUNK", 12)
    rows = row_statistics(LABELS, PROBABILITIES, layout=LAYOUT)
    (drawn,) = resampled([rows], resamples=7)
    assert drawn.shape[0] == 7
    assert LAYOUT.parts(drawn)[2].sum(-1).tolist() == [5.0] * 7, "every draw has as many rows as the test set"
