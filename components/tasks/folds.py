"""Folds of the cross-validation within a label budget."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from components.tasks.data import Labels

#: Separates these random numbers from those of the sample of a budget (`components.tasks.budgets`).
_PURPOSE = 1


def folds_of(strata: Labels, count: int, *, seed: int) -> NDArray[np.int64]:
    """The fold of each training row of a run, stratified.

    Each stratum is dealt to the folds in a random order that depends on the seed, and the next stratum goes on where
    the last one ended, so that the sizes of two folds differ by at most one, and so do their rows of one stratum.

    Args:
        strata: (N,) stratum of each row, for example its class; N >= 2.
        count: maximum number of folds; there are at most N.
        seed: of the order.

    Returns:
        (N,) numbers from 0; each fold has at least one row.
    """
    folds = np.empty(len(strata), dtype=np.int64)
    used = min(count, len(strata))
    dealt = 0
    for stratum in np.unique(strata):
        rows = np.random.default_rng([seed, int(stratum), _PURPOSE]).permutation(np.flatnonzero(strata == stratum))
        folds[rows] = (dealt + np.arange(len(rows))) % used
        dealt += len(rows)
    return folds
