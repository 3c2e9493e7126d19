"""Which rows of train a budget gets, and which tasks' budgets go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from components.errors import ConfigError
from components.tasks.data import Labels

#: What `budgets: [all]` is called where budgets are numbers.
ALL = -1


def sample_rows(strata: Labels, budget: int, *, seed: int) -> tuple[NDArray[np.int64], dict[int, int]]:
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


def budget_name(budget: int) -> str:
    """A budget as params.yaml has it."""
    return "all" if budget == ALL else str(budget)


def refuse_unpaired(group: str, *, budgets: Mapping[str, Sequence[int]], seeds: Mapping[str, Sequence[int]]) -> None:
    """Tasks that learn together have as many budgets each, of which the smallest go together and so on, and a seed in
    common.

    Args:
        group: name of the block in `together`.
        budgets, seeds: of each task.

    Raises:
        ConfigError: they have not.
    """
    problem = ""
    if len(set(map(len, budgets.values()))) > 1:
        each = "; ".join(f"{task} {', '.join(map(budget_name, own))}" for task, own in budgets.items())
        problem = f"as many budgets each, found {each}"
    elif not set.intersection(*map(set, seeds.values())):
        problem = "a seed in common, found " + "; ".join(
            f"{task} {', '.join(map(str, own))}" for task, own in seeds.items()
        )
    if problem:
        raise ConfigError(f"together.{group}: its tasks must have {problem}")
