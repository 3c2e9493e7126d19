import numpy as np
import pytest

from components.tasks.folds import folds_of


def test_every_fold_has_the_same_share_of_each_stratum() -> None:
    strata = np.repeat([0, 1, 2], [10, 7, 4])
    folds = folds_of(strata, 5, seed=3)
    assert sorted(np.bincount(folds)) == [4, 4, 4, 4, 5]
    for stratum in range(3):
        counts = np.bincount(folds[strata == stratum], minlength=5)
        assert counts.max() - counts.min() <= 1


def test_small_classes_are_dealt_to_different_folds() -> None:
    folds = folds_of(np.arange(6), 5, seed=0)
    assert sorted(np.bincount(folds)) == [1, 1, 1, 1, 2]


@pytest.mark.parametrize("count", [2, 5])
def test_there_are_at_most_as_many_folds_as_rows(count: int) -> None:
    assert sorted(set(folds_of(np.asarray([0, 1]), count, seed=0))) == [0, 1]


def test_folds_depend_on_the_seed_only() -> None:
    strata = np.repeat([0, 1], 20)
    assert np.array_equal(folds_of(strata, 5, seed=1), folds_of(strata, 5, seed=1))
    assert not np.array_equal(folds_of(strata, 5, seed=1), folds_of(strata, 5, seed=2))
