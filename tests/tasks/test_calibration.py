"""Temperatures: exact values, the prior, and what they do to the calibration error."""

import numpy as np
import pytest
from scipy.special import softmax

from components.data.tasks.calibration import temperature_for, temperature_of, tempered
from components.data.tasks.kinds.classification import Classification
from components.data.tasks.kinds.multilabel import Multilabel
from components.data.tasks.kinds.numbers import Regression

LABELS = ["a", "b"]


def test_many_rows_have_the_confidence_of_their_share_of_right_answers():
    # Logits of 4 that are right in 3 of 4 rows: 1 / (1 + exp(-4 / T)) = 3 / 4.
    logits = np.tile([[4.0, 0.0]], (4000, 1))
    targets = np.tile([[1.0, 0], [1, 0], [1, 0], [0, 1]], (1000, 1))
    assert temperature_of(logits, targets, exclusive=True) == pytest.approx(4 / np.log(3), rel=2e-3)
    assert temperature_of(logits[:, :1], targets[:, :1], exclusive=False) == pytest.approx(4 / np.log(3), rel=2e-3)


@pytest.mark.parametrize("right", [True, False])
def test_one_row_changes_little(right):
    grid = np.exp(np.linspace(-3, 3, 60_001))
    margin = 4.0 if right else -4.0
    expected = grid[np.argmin(np.log1p(np.exp(-margin / grid)) + np.log(grid) ** 2 / 2)]
    actual = temperature_of(np.array([[4.0, 0]]), np.array([[1.0, 0] if right else [0, 1.0]]), exclusive=True)
    assert actual == pytest.approx(expected, rel=1e-3)
    assert 0.9 < actual < 1 if right else 1.5 < actual < 3


def test_probabilities_at_a_temperature():
    answers = [np.array([0.8, 0.2], dtype=np.float32), np.array([1, 0], dtype=np.float32)]
    actual = tempered(answers, 2.0, exclusive=True)
    np.testing.assert_allclose(actual[0], [2 / 3, 1 / 3], atol=1e-6)  # sqrt(4) : 1
    np.testing.assert_allclose(actual[1], [1, 0], atol=1e-6)
    np.testing.assert_allclose(tempered(answers[:1], 2.0, exclusive=False)[0], [2 / 3, 1 / 3], atol=1e-6)
    np.testing.assert_allclose(tempered([np.array([0.5, 0.8])], 0.5, exclusive=False)[0], [0.5, 16 / 17], atol=1e-6)
    for rows in (answers, answers[:1]):
        assert np.array_equal(tempered(rows, 0.7, exclusive=True)[0], tempered(answers, 0.7, exclusive=True)[0])
    assert tempered(answers, 1.0, exclusive=True)[0] is answers[0]
    assert tempered([], 0.5, exclusive=True) == []


def test_calibration_by_sixty_four_rows_lowers_the_error_on_others():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(5064, 4)) * 2
    labels = np.array([rng.choice(4, p=row) for row in softmax(logits, axis=1)])
    answers, targets = list(softmax(logits / 4, axis=1)), [np.array([float(label)]) for label in labels]
    scoring = Classification(["a", "b", "c", "d"])
    temperature = temperature_for(scoring, targets[:64], answers[:64])
    assert temperature == pytest.approx(0.25, rel=0.3)
    after = tempered(answers[64:], temperature, exclusive=True)
    fields = [("",)] * 5000
    before = scoring.score(fields, targets[64:], answers[64:])
    scores = scoring.score(fields, targets[64:], after)
    assert before["ece"] > 0.2 and scores["ece"] < 0.05
    assert scores["macro_f1"] == before["macro_f1"]


def test_rows_of_no_class_and_other_kinds_of_answers_have_no_temperature():
    answers = [np.array([0.9, 0.1], dtype=np.float32)] * 3
    inside, outside = np.array([0.0]), np.array([-1.0])
    scoring = Classification(LABELS)
    assert temperature_for(scoring, [inside, outside, outside], answers) == temperature_for(
        scoring, [inside], answers[:1]
    )
    assert temperature_for(scoring, [outside], answers[:1]) == 1
    assert temperature_for(Multilabel(LABELS), [np.zeros(0)] * 3, answers) > 1
    assert temperature_for(Regression(), [np.array([3.0])], [np.array([2.0])]) == 1


def test_labels_that_were_not_learned_have_no_influence():
    """Such as the class of one row, which is in no other fold: words models give it the probability 0."""
    rng = np.random.default_rng(0)
    shares = softmax(rng.normal(size=(40, 2)) * 2, axis=1)
    exclusive = list(np.concatenate([shares, np.zeros((40, 1))], axis=1).astype(np.float32))
    labels = [np.array([float(rng.choice(2, p=row))]) for row in shares]
    unseen = [np.array([2.0])] * 3 + labels[3:]
    scoring = Classification(["a", "b", "c"])
    assert temperature_for(scoring, unseen, exclusive) == temperature_for(scoring, labels[3:], exclusive[3:])
    assert temperature_for(scoring, unseen[:3], exclusive[:3]) == 1
    assert tempered(exclusive, 20.0, exclusive=True)[0][2] < 1e-12
    # Independent labels: one that no other row has, and one that all others have.
    usual = np.concatenate([np.zeros((40, 1)), np.ones((40, 1))], axis=1)
    independent = list(np.concatenate([shares, usual], axis=1).astype(np.float32))
    with_rare = [np.append(label, 2.0 if row == 0 else 3.0) for row, label in enumerate(labels)]
    expected = temperature_for(Multilabel(LABELS), labels, list(shares.astype(np.float32)))
    assert temperature_for(Multilabel([*LABELS, "c", "d"]), with_rare, independent) == pytest.approx(expected, rel=1e-6)
    assert temperature_for(Multilabel(["c", "d"]), [np.array([0.0])], [np.array([0.0, 1.0])]) == 1


def test_a_probability_that_was_rounded_to_one_has_the_logit_of_its_rounding():
    (actual,) = tempered([np.array([1.0, 0.5], dtype=np.float32)], 2.0, exclusive=False)
    np.testing.assert_allclose(actual, [1 / (1 + np.exp(-25 * np.log(2) / 2)), 0.5], atol=1e-7)
