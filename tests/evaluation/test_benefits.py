"""Exact values of the three benefits of transfer and of label efficiency."""

import numpy as np
import pytest

from components.evaluation.aggregates import Scores
from components.evaluation.compare import labels_needed, training_benefits


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        # The gain is 0.4. Epoch 2 (0.58) is the first above 0.2 + 90% of it: 0.38 in 2 epochs.
        ([0.2, 0.4, 0.58, 0.6], (0.2, 0.19, 0.6)),
        ([0.5, 0.4], (0.5, 0.0, 0.5)),
        ([0.5], (0.5, 0.0, 0.5)),
    ],
)
def test_a_training_curve_has_start_slope_and_asymptote(scores, expected):
    assert tuple(training_benefits(range(len(scores)), scores).values()) == pytest.approx(expected)


def test_a_number_on_test_rows_covers_their_clusters_and_is_paired_by_seed():
    ours = Scores([0, 1], np.array([[0.5, 0.4, 0.5, 0.6]] * 2), np.ones(3))
    theirs = Scores([0, 1], np.full((2, 4), 0.1), np.ones(3))
    # Jackknife: 2 / 3 * 0.02, with two degrees of freedom.
    assert ours.minus(theirs).interval().high - 0.4 == pytest.approx(4.302653 * (0.04 / 3) ** 0.5)
    assert (theirs.interval().low, theirs.interval().high) == pytest.approx((0.1, 0.1))
    ours = Scores([0, 1, 2], np.array([[0.5], [0.6], [0.7]]))
    theirs = Scores([2, 1, 0, 3], np.array([[0.5], [0.4], [0.3], [0.9]]))
    difference = ours.minus(theirs)
    assert list(difference.interval().as_dict().values()) == pytest.approx([0.2] * 3), "each seed gains the same"
    assert difference.seeds == [0, 1, 2] and ours.interval().high - 0.6 == pytest.approx(4.302653 * 0.1 / 3**0.5)


@pytest.mark.parametrize(("score", "labels"), [(0.4, 10), (0.5, 20), (0.2, 5), (0.6, None)])
def test_labels_needed_are_interpolated_in_the_logarithm(score, labels):
    actual = labels_needed([5, 20], [0.3 - score, 0.5 - score])
    assert actual == (labels and pytest.approx(labels))
