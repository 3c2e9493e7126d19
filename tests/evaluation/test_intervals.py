"""Intervals against closed forms and a simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from components.evaluation.intervals import Interval, interval


def test_without_row_variance_it_is_the_t_interval() -> None:
    # Mean 0.5, s = 0.1: t(0.975; 2) = 4.3027; half width 4.3027 * 0.1 / sqrt(3).
    found = interval(np.asarray([0.4, 0.5, 0.6]), confidence=0.95)
    assert found.mean == pytest.approx(0.5)
    assert found.high - found.mean == pytest.approx(4.302653 * 0.1 / np.sqrt(3), rel=1e-6)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)


def test_without_seed_variance_it_is_the_normal_interval() -> None:
    resampled = np.asarray([0.48, 0.52] * 500)
    found = interval(np.asarray([0.5]), resampled, confidence=0.95)
    assert found.high - 0.5 == pytest.approx(1.959964 * resampled.std(ddof=1), rel=1e-6)
    same = interval(np.asarray([0.5, 0.5, 0.5]), resampled, confidence=0.95)
    assert same == found, "equal seeds add no variance"


def test_both_components_with_satterthwaite_degrees_of_freedom() -> None:
    seeds, resampled = np.asarray([0.4, 0.5, 0.6]), np.asarray([0.45, 0.55] * 100)
    of_seeds, of_rows = 0.01 / 3, resampled.var(ddof=1)
    freedom = (of_seeds + of_rows) ** 2 / (of_seeds**2 / 2)
    expected = stats.t.ppf(0.975, freedom) * np.sqrt(of_seeds + of_rows)
    assert interval(seeds, resampled, confidence=0.95).high - 0.5 == pytest.approx(expected)


def test_coverage_is_at_least_the_confidence_level() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        rows = rng.normal(0, 0.02)
        seeds = 0.6 + rows + rng.normal(0, 0.02, 3)
        # The bootstrap over rows estimates the standard error that all seeds share.
        found = interval(seeds, np.asarray([-0.02, 0.02] * 100), confidence=0.95)
        hits += found.low <= 0.6 <= found.high
    assert 0.93 <= hits / 2000 <= 0.99


def test_is_disjoint() -> None:
    low, middle, high = Interval(1, 0, 2), Interval(2, 1.5, 2.5), Interval(4, 3, 5)
    assert high.is_disjoint(low) and low.is_disjoint(high) and not low.is_disjoint(middle)
