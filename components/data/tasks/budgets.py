"""Label budgets: the training rows of a budget, and the budgets of tasks that are learned together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from components.core.errors import ConfigError

if TYPE_CHECKING:
    from components.data.tasks.data import Labels

#: Number that represents the budget `all`.
ALL = -1


def sample_rows(strata: Labels, budget: int, *, seed: int) -> tuple[NDArray[np.int64], dict[int, int]]:
    """A sample of training rows: `budget` rows of each stratum (for example a class), or all rows for `ALL`.

    The order in which a stratum's rows are sampled depends on the seed only, so a larger budget contains the smaller
    one, and every model is trained on the same rows.

    Args:
        strata: (N,) stratum of every row of the train split.
        budget: rows per stratum; all rows of a stratum that has fewer.

    Returns:
        Row indices, ascending; and for each stratum with fewer rows than the budget the number of its rows.
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
    """Distinct budgets as numbers, ascending; `all` (ALL) is the last."""
    numbers = {ALL if budget == "all" else int(budget) for budget in budgets}
    return sorted(numbers, key=lambda budget: (budget == ALL, budget))


def budget_name(budget: int) -> str:
    """A budget as in params.yaml."""
    return "all" if budget == ALL else str(budget)


def refuse_unpaired(group: str, *, budgets: Mapping[str, Sequence[int]], seeds: Mapping[str, Sequence[int]]) -> None:
    """Check that tasks can be learned together: the same number of budgets each, which are paired in ascending order,
    and a common seed.

    Raises:
        ConfigError: the numbers of budgets differ, or there is no common seed.
    """
    problem = ""
    if len(set(map(len, budgets.values()))) > 1:
        each = "; ".join(f"{task} {', '.join(map(budget_name, ours))}" for task, ours in budgets.items())
        problem = f"the same number of budgets, found {each}"
    elif not set.intersection(*map(set, seeds.values())):
        problem = "a common seed, found " + "; ".join(
            f"{task} {', '.join(map(str, ours))}" for task, ours in seeds.items()
        )
    if problem:
        raise ConfigError(f"together.{group}: its tasks must have {problem}")
