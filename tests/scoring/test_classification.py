"""Metrics of one label per row and of several, compared with hand-computed values and scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics

from components.data.tasks.kinds.choice import Choice
from components.data.tasks.kinds.classification import UNSEEN, Classification
from components.data.tasks.kinds.multilabel import Multilabel

SCORING = Classification(["a", "b", "c"], bins=4)
LABELS = np.asarray([[0], [0], [1], [1], [0]])
PROBABILITIES = np.asarray(
    [[0.75, 0.25, 0.0], [0.4, 0.6, 0.0], [0.0, 1.0, 0.0], [0.7, 0.2, 0.1], [0.9, 0.1, 0.0]], dtype=np.float32
)
FIELDS = [("",)] * 5


def totals() -> np.ndarray:
    return SCORING.total(FIELDS, LABELS, PROBABILITIES)


def test_calibration_curve_by_hand():
    assert SCORING.calibration(totals()) == [
        {"low": 0.5, "high": 0.75, "rows": 3, "confidence": pytest.approx(2.05 / 3), "accuracy": pytest.approx(1 / 3)},
        {"low": 0.75, "high": 1.0, "rows": 2, "confidence": pytest.approx(0.95), "accuracy": 1.0},
    ]


def test_classes_by_hand():
    assert SCORING.classes(totals()) == {
        "a": {"precision": 2 / 3, "recall": 2 / 3, "f1": 4 / 6, "rows": 3},
        "b": {"precision": 1 / 2, "recall": 1 / 2, "f1": 2 / 4, "rows": 2},
        "c": {"precision": None, "recall": None, "f1": None, "rows": 0},
    }


def test_a_prediction_of_a_class_without_rows_is_an_error_of_the_true_class():
    guessed = np.asarray([[0.1, 0.1, 0.8], *PROBABILITIES[1:]], dtype=np.float32)
    actual = SCORING.classes(SCORING.total(FIELDS, LABELS, guessed))
    assert actual["c"] == {"precision": None, "recall": None, "f1": None, "rows": 0}
    assert actual["a"]["recall"] == 1 / 3
    assert SCORING.score(FIELDS, LABELS, guessed)["macro_f1"] == pytest.approx((2 / 5 + 2 / 4) / 2)


def test_scores_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 400)
    probabilities = rng.dirichlet(np.ones(5), 400)
    probabilities[np.arange(400), labels] += 0.3
    probabilities = (probabilities / probabilities.sum(1, keepdims=True)).astype(np.float32)
    guesses = probabilities.argmax(1)
    scoring = Classification(list("abcde"))
    sums = scoring.total([("",)] * 400, list(labels[:, None].astype(float)), list(probabilities))
    actual = scoring.scores(sums)
    assert actual["macro_f1"] == pytest.approx(metrics.f1_score(labels, guesses, average="macro"))
    assert actual["micro_f1"] == pytest.approx(metrics.f1_score(labels, guesses, average="micro"))
    assert actual["accuracy"] == pytest.approx(metrics.accuracy_score(labels, guesses))
    assert actual["mcc"] == pytest.approx(metrics.matthews_corrcoef(labels, guesses))
    expected = metrics.precision_recall_fscore_support(labels, guesses)
    for name, values in zip(("precision", "recall", "f1", "rows"), expected, strict=True):
        np.testing.assert_allclose([entry[name] for entry in scoring.classes(sums).values()], values)


def test_rows_may_differ_in_their_number_of_choices():
    scoring = Choice(bins=4)
    targets = [np.asarray([index]) for index in (2, 0, 1)]
    answers = [np.asarray(row, dtype=np.float32) for row in ([0.1, 0.2, 0.7], [0.4, 0.6], [0.1, 0.8, 0.05, 0.05])]
    sums = scoring.total([("why", "a", "b", "c"), ("why", "a", "b"), ("why", *"abcd")], targets, answers)
    # Right, wrong, right; in bins (0.5, 0.75]: 0.7 and 0.6, one right; (0.75, 1]: 0.8, right.
    actual = scoring.scores(sums)
    assert actual["accuracy"] == pytest.approx(2 / 3)
    assert actual["ece"] == pytest.approx((abs(1 - 1.3) + abs(1 - 0.8)) / 3)
    assert [entry["rows"] for entry in scoring.calibration(sums)] == [2, 1]
    assert scoring.classes(sums) == {} and scoring.confusion(targets, answers) is None


def test_rows_of_no_class_only_affect_the_outside_auroc():
    draw = np.random.default_rng(3)
    targets = [np.asarray([float(number)]) for number in draw.integers(-1, 3, 400)]
    inside = np.asarray([target[0] >= 0 for target in targets])
    answers = [np.asarray(draw.dirichlet([0.3 if learned else 0.6] * 3), dtype=np.float32) for learned in inside]
    plain = Classification(["a", "b", "c"])
    scoring = plain.fitting(targets)
    assert plain.fitting([targets[row] for row in np.flatnonzero(inside)]) == plain
    assert scoring.names == (*plain.names, "outside_auroc")
    actual = scoring.score([("",)] * 400, targets, answers)
    kept = [[values[row] for row in np.flatnonzero(inside)] for values in (targets, answers)]
    expected = plain.score([("",)] * int(inside.sum()), *kept)
    assert {name: actual[name] for name in plain.names} == pytest.approx(expected)
    assert plain.score([("",)] * 400, targets, answers) == pytest.approx(expected)
    exact = metrics.roc_auc_score(inside, [answer.max() for answer in answers])
    assert actual["outside_auroc"] == pytest.approx(exact, abs=0.002)
    assert scoring.confusion(targets, answers).sum() == inside.sum()
    assert scoring.constant(targets)[0] == pytest.approx(np.bincount([int(t[0]) for t in kept[0]]) / inside.sum())


def test_confidences_close_to_one_have_different_levels():
    """A confident model, slightly more confident on rows of its classes."""
    targets = [np.asarray([0.0]), np.asarray([-1.0])]
    answers = [np.asarray([1 - share, share], dtype=np.float32) for share in (1e-6, 1e-5)]
    assert Classification(["a", "b"]).fitting(targets).score([("",)] * 2, targets, answers)["outside_auroc"] == 1.0
    same = [answers[0]] * 2
    assert Classification(["a", "b"]).fitting(targets).score([("",)] * 2, targets, same)["outside_auroc"] == 0.5


def test_confusion_has_true_labels_as_rows():
    assert SCORING.confusion(LABELS, PROBABILITIES).tolist() == [[2, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_the_constant_for_choices_is_a_position():
    scoring = Choice()
    targets = [np.asarray([index]) for index in (1, 1, 0)]
    assert [int(answer.argmax()) for answer in scoring.constant(targets)] == [1, 1, 1]


def test_rows_with_a_label_that_train_lacks_are_errors():
    unseen = np.asarray([*LABELS, [UNSEEN], [UNSEEN]])
    answers = np.asarray([*PROBABILITIES, [0.9, 0.1, 0.0], [0.0, 0.6, 0.4]], dtype=np.float32)
    scores = SCORING.scores(SCORING.total([("",)] * 7, unseen, answers))
    truths, guesses = [0, 0, 1, 1, 0, 3, 3], answers.argmax(1)
    assert scores["accuracy"] == metrics.accuracy_score(truths, guesses) == 3 / 7
    assert scores["mcc"] == pytest.approx(metrics.matthews_corrcoef(truths, guesses))
    assert scores["macro_f1"] == pytest.approx(metrics.f1_score(truths, guesses, labels=[0, 1], average="macro"))
    assert not SCORING.fitting(unseen).outside
    assert SCORING.confusion(unseen, answers).sum() == 5


def test_the_constants():
    answers = SCORING.constant(LABELS)
    np.testing.assert_allclose(answers, [[0.6, 0.4, 0.0]] * 5, rtol=1e-6)
    scores = SCORING.score(FIELDS, LABELS, answers)
    assert scores["accuracy"] == pytest.approx(3 / 5) and scores["mcc"] == 0
    multilabel = Multilabel(["a", "b", "c"])
    for rows, expected in (
        ([[0, 1], [0], [1], [0, 2]], [0.75, 0.5, 0.25]),
        # None has half of the rows: the most frequent one.
        ([[0], [0], [1], [], []], [0.5, 0.2, 0.0]),
    ):
        targets = [np.asarray(row, dtype=np.float64) for row in rows]
        assert multilabel.constant(targets)[0].tolist() == pytest.approx(expected)


def test_scores_of_several_labels_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    truths = rng.random((200, 4)) < 0.3
    answers = np.clip(truths * 0.4 + rng.random((200, 4)) * 0.6, 0, 1)
    targets = [np.flatnonzero(row).astype(float) for row in truths]
    actual = Multilabel(list("abcd")).score([("",)] * 200, targets, list(answers))
    guesses = answers >= 0.5
    assert actual["micro_f1"] == pytest.approx(metrics.f1_score(truths, guesses, average="micro"))
    assert actual["macro_f1"] == pytest.approx(metrics.f1_score(truths, guesses, average="macro"))
    assert actual["subset_accuracy"] == pytest.approx(metrics.accuracy_score(truths, guesses))
