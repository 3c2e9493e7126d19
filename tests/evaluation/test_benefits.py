"""Exact values of the three benefits of transfer and of label efficiency."""

import numpy as np
import pytest

from components.evaluation.benefits import compare, label_slope, labels_needed, training_benefits


def test_a_training_curve_has_start_slope_and_asymptote():
    # The gain is 0.4. Epoch 2 (0.58) is the first above 0.2 + 90% of it: 0.38 in 2 epochs.
    actual = training_benefits([0, 1, 2, 3], [0.2, 0.4, 0.58, 0.6])
    assert actual == {"start": 0.2, "slope": pytest.approx(0.19), "asymptote": 0.6}


def test_the_asymptote_of_a_decreasing_curve_is_its_start():
    assert training_benefits([0, 1], [0.5, 0.4]) == {"start": 0.5, "slope": 0.0, "asymptote": 0.5}
    assert training_benefits([0], [0.5]) == {"start": 0.5, "slope": 0.0, "asymptote": 0.5}


def test_the_slope_over_labels_is_the_gain_per_doubling():
    actual = label_slope([5, 10, 20], np.array([[0.3, 0.2], [0.4, 0.4], [0.5, 0.6]]))
    assert actual == pytest.approx([0.1, 0.2])


def test_a_benefit_on_test_rows_covers_their_clusters():
    ours = {seed: {"slope": np.array([0.5, 0.4, 0.5, 0.6])} for seed in (0, 1)}
    theirs = {seed: {"slope": np.full(4, 0.1)} for seed in (0, 1)}
    actual = compare(ours, theirs, confidence=0.95, sizes=np.ones(3))["slope"]
    # Jackknife: 2 / 3 * 0.02, with two degrees of freedom.
    assert actual["difference"]["high"] - 0.4 == pytest.approx(4.302653 * (0.04 / 3) ** 0.5)
    assert (actual["scratch"]["low"], actual["scratch"]["high"]) == pytest.approx((0.1, 0.1))


def test_differences_are_paired_by_seed():
    transferred = {seed: {"start": 0.5 + seed / 10, "slope": 0.1, "asymptote": 0.8} for seed in (0, 1, 2)}
    scratch = {seed: {"start": 0.3 + seed / 10, "slope": 0.2, "asymptote": 0.7} for seed in (0, 1, 2, 3)}
    actual = compare(transferred, scratch, confidence=0.95)
    assert list(actual["start"]["difference"].values()) == pytest.approx([0.2] * 3), "each seed gains the same"
    transferred = actual["start"]["transferred"]
    assert transferred["high"] - transferred["mean"] == pytest.approx(4.302653 * 0.1 / 3**0.5)
    assert [actual[name]["holds"] for name in ("start", "slope", "asymptote")] == [True, False, True]


def test_labels_needed_are_interpolated_in_the_logarithm():
    curve = {"labels": [5, 20], "scores": [0.3, 0.5]}
    assert labels_needed(0.4, **curve) == pytest.approx(10)
    assert labels_needed(0.5, **curve) == pytest.approx(20)
    assert labels_needed(0.2, **curve) == 5
    assert labels_needed(0.6, **curve) is None
