import numpy as np
import pytest

from components.core.errors import DataError
from components.data.tasks.budgets import folds_of


def dealt(strata: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Rows of each stratum in a random order, dealt in turn."""
    folds, start = np.empty(len(strata), dtype=np.int64), 0
    for stratum in np.unique(strata):
        rows = np.random.default_rng([seed, int(stratum), 1]).permutation(np.flatnonzero(strata == stratum))
        folds[rows] = (start + np.arange(len(rows))) % count
        start += len(rows)
    return folds


@pytest.mark.parametrize("sizes", [(10, 7, 5), (5, 5), (13, 6, 9, 11)])
def test_rows_that_are_units_are_dealt_in_turn(sizes):
    strata = np.random.default_rng(0).permutation(np.repeat(np.arange(0, 2 * len(sizes), 2), sizes))
    assert np.array_equal(folds_of(strata, 5, seed=7), dealt(strata, 5, 7))


@pytest.mark.parametrize(("rare", "expected"), [(3, 3), (2, 2), (1, 5)])
def test_each_fold_has_each_class_where_that_is_possible(rare, expected):
    strata = np.asarray([0] * 10 + [1] * rare)
    folds = folds_of(strata, 5, seed=0)
    assert folds.max() + 1 == expected
    assert rare == 1 or all({*strata[folds == fold]} == {0, 1} for fold in range(expected))


def test_the_rows_of_a_unit_are_in_one_fold_and_classes_stay_balanced():
    rng = np.random.default_rng(0)
    units = np.repeat(np.arange(40), rng.integers(1, 12, size=40))
    strata = (units % 2 + (rng.random(len(units)) < 0.2)) % 2
    folds = folds_of(strata, 5, seed=0, units=units)
    assert all(len({*folds[units == unit]}) == 1 for unit in range(40))
    for stratum in (0, 1):
        counts = np.bincount(folds[strata == stratum], minlength=5)
        assert counts.max() - counts.min() <= 4, "of about 25"


def test_a_class_in_few_units_limits_the_folds():
    strata, units = np.asarray([0] * 10 + [1] * 6), np.asarray([*range(10), 10, 10, 10, 11, 11, 11])
    folds = folds_of(strata, 5, seed=0, units=units)
    assert folds.max() == 1 and {*folds[strata == 1]} == {0, 1}


def test_one_unit_has_no_folds():
    with pytest.raises(DataError, match="4 training row.* one group, too few"):
        folds_of(np.asarray([0, 1, 0, 1]), 5, seed=0, units=np.zeros(4, dtype=np.int64))
