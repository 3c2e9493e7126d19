"""What it takes to show a gain: minimal detectable effect, number of labels, error budget."""

from __future__ import annotations

import math

import numpy as np
import pytest

from components.data.scoring.classification import Classification
from components.data.scoring.intervals import Variance, half_width
from components.registry.promotion import compare, detectable, power, units_needed
from components.settings.promote import PromotionRule

KNOWN = math.inf


def test_a_gain_is_a_difference_of_scores_with_the_variance_between_clusters() -> None:
    scoring = Classification(["a", "b"], bins=1)
    labels, clusters = np.tile([0, 1], 30), np.arange(60) // 6
    wrong = np.random.default_rng(0).random(60) < 0.3
    before, after = (
        scoring.statistics([("text",)] * 60, labels[:, None], np.eye(2, dtype=np.float32)[guesses])
        for guesses in (np.where(wrong, 1 - labels, labels), labels)
    )
    gain = compare(before, after, clusters, scoring=scoring, metric="accuracy")
    assert (gain.candidate, gain.value, gain.units) == (1.0, pytest.approx(wrong.mean()), 10)
    assert gain.sampling.value == pytest.approx(wrong.reshape(10, 6).mean(1).var(ddof=1) / 10)
    assert compare(before, after, None, scoring=scoring, metric="accuracy").units == 60


def test_the_errors_of_all_comparisons_sum_to_one_minus_confidence() -> None:
    rule = PromotionRule(confidence=0.95)
    assert [rule.error_of(use) for use in (1, 2, 3)] == pytest.approx([0.05 / 2, 0.05 / 6, 0.05 / 12])
    assert sum(rule.error_of(use) for use in range(1, 100_000)) == pytest.approx(0.05, rel=1e-4)


def test_the_detectable_effect_is_shown_with_80_percent_power() -> None:
    sampling = Variance(0.0003, 60.0)
    effect = detectable(sampling, 0.01)
    assert power(sampling, 0.01, effect) == pytest.approx(0.8)
    assert power(sampling, 0.01, half_width([sampling], 0.01)) == pytest.approx(0.5)
    assert power(Variance(0.0, KNOWN), 0.01, 0.1) == 1


def test_units_needed_is_the_sample_size_of_a_one_sided_z_test() -> None:
    # Std per row 0.5, effect 0.05: (2.48647 * 0.5 / 0.05) ** 2 = 618.26.
    sampling = Variance(0.05**2, KNOWN)
    assert units_needed(0.05, sampling, 100, error=0.05) == 619
    assert units_needed(0.5, sampling, 100, error=0.05) == 101
    assert units_needed(0.0, sampling, 100, error=0.05) is None
    assert units_needed(-0.03, sampling, 100, error=0.05) is None
    # With clusters, the quantile of Student's t falls with their number: more clusters than by the normal one.
    assert 618 < (units_needed(0.05, Variance(0.05**2, 9.0), 10, error=0.05) or 0) * 10 < 660
