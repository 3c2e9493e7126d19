"""Which rows of train a budget gets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from components.finetuning.tasks.base import Labels

#: What `budgets: [all]` is called where budgets are numbers.
ALL = -1


def draw(strata: Labels, budget: int, *, seed: int) -> tuple[NDArray[np.int64], dict[int, int]]:
    """Rows of one training set: `budget` rows of each stratum (a class, say), or all rows for `ALL`.

    The order in which a stratum's rows are drawn depends on the seed alone, so a larger budget holds the smaller one
    and every model sees the same rows.

    Args:
        strata: (N,) the stratum of every row of the train split.
        budget: rows a stratum; one that has fewer gives what it has.
        seed: of the draw.

    Returns:
        Sorted row numbers, and for each stratum that fell short the number of rows it has.
    """
    if budget == ALL:
        return np.arange(len(strata)), {}
    chosen: list[NDArray[np.int64]] = []
    short: dict[int, int] = {}
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        chosen.append(np.random.default_rng([seed, int(stratum)]).permutation(rows)[:budget])
        if len(rows) < budget:
            short[int(stratum)] = len(rows)
    return np.sort(np.concatenate(chosen)), short


def numbered(budgets: Sequence[int | str]) -> list[int]:
    """Budgets as distinct numbers, ascending, with `all` (as ALL) last."""
    numbers = {ALL if budget == "all" else int(budget) for budget in budgets}
    return sorted(numbers, key=lambda budget: (budget == ALL, budget))
