"""Calibration and selection of pseudo-labels, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logit

from components.unlabelled.pseudo_labels import select, teach, temperature_of


def test_the_temperature_makes_the_mean_confidence_that_of_the_share_of_correct_rows() -> None:
    # Logits +-4 are right in 3 of 4 rows, or 4 of 6 with one more row of each label: T = 4 / log 2.
    logits = np.array([[4.0, 0], [4, 0], [4, 0], [4, 0]])
    targets = np.array([[1.0, 0], [1, 0], [1, 0], [0, 1]])
    assert temperature_of(logits, targets, exclusive=True) == pytest.approx(4 / np.log(2), rel=1e-3)
    independent = temperature_of(logits[:, :1], targets[:, :1], exclusive=False)
    assert independent == pytest.approx(4 / np.log(2), rel=1e-3)


def test_the_teacher_is_the_mean_of_calibrated_probabilities() -> None:
    first, second = np.array([[2 * logit(0.8)]]), np.array([[logit(0.6)]])
    np.testing.assert_allclose(teach([first, second], [2.0, 1.0], exclusive=False), [[0.7]])


def test_every_class_gets_its_most_confident_rows_and_the_weight_of_its_labelled_rows() -> None:
    first = np.array([0.95, 0.9, 0.85, 0.8, 0.45, 0.3])
    teacher = np.stack([first, 1 - first], axis=1)
    labelled = np.array([[1.0, 0], [1, 0], [0, 1]])
    found = select(teacher, labelled, exclusive=True, share=2 / 3, confidence=0.6, weight=1.0)
    # Two rows of each class at most; of the second class one is sure enough.
    assert found.rows.tolist() == [0, 1, 5]
    assert found.targets.tolist() == [[1, 0], [1, 0], [0, 1]]
    # Above chance 0.9 and 0.8 of the first class, for its two labelled rows.
    np.testing.assert_allclose(found.weights, [2 * 0.9 / 1.7, 2 * 0.8 / 1.7, 1.0])


def test_rows_with_several_labels_are_chosen_by_their_mean_confidence() -> None:
    teacher = np.array([[0.9, 0.1], [0.5, 0.9], [0.6, 0.5], [0.99, 0.99]])
    found = select(teacher, np.ones((3, 2)), exclusive=False, share=0.75, confidence=0.6, weight=2.0)
    assert found.rows.tolist() == [0, 1, 3]
    assert found.targets.tolist() == [[1, 0], [0, 1], [1, 1]]
    np.testing.assert_allclose(found.weights, 6 * np.array([0.8, 0.4, 0.98]) / 2.18)


def test_no_row_is_sure_enough() -> None:
    for exclusive in (True, False):
        found = select(np.full((4, 2), 0.5), np.eye(2), exclusive=exclusive, share=1, confidence=0.6, weight=1)
        assert len(found.rows) == len(found.weights) == 0 and found.targets.shape == (0, 2)
