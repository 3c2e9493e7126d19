"""Label budgets: the training rows of a budget, their folds, and the budgets of tasks that are learned together."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from components.core.errors import ConfigError, DataError
from components.data.tasks.data import Labels
from components.settings.tasks import ALL as ALL
from components.settings.tasks import budget_name as budget_name


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


#: Separates these random numbers from the random numbers of a budget's sample (`sample_rows`).
_PURPOSE = 1


def folds_of(strata: Labels, count: int, *, seed: int, units: Labels | None = None) -> NDArray[np.int64]:
    """The fold of each training row of a run, stratified; the rows of a unit are in one fold.

    There are at most as many folds as the rarest stratum has units, so that each fold can hold each stratum; strata
    that are in one unit only, which no second fold can hold, do not count. Units of several rows are dealt first, the
    largest first, each to the fold with the smallest share of its strata. Then the other rows of each stratum are dealt
    in a random order that depends on the seed. Without units of several rows, the sizes of two folds differ by at most
    one, and so do their rows of one stratum.

    Args:
        strata: (N,) stratum of each row, for example its class; N >= 2.
        count: maximum number of folds.
        units: (N,) unit of each row (`components.data.tasks.data.units_of`); None: each row is a unit.

    Returns:
        (N,) numbers from 0; each fold has at least one row.

    Raises:
        DataError: there are fewer than two units.
    """
    names, strata = np.unique(strata, return_inverse=True)
    units = np.arange(len(strata)) if units is None else units
    _, units, sizes = np.unique(units, return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        raise DataError(f"{len(strata)} training row(s) are one text or one group, too few for a cross-validation")
    of_strata = np.bincount(np.unique(np.stack([strata, units]), axis=1)[0])
    used = int(min(count, len(sizes), *of_strata[of_strata > 1]))
    rows_in = np.bincount(strata)
    folds = np.empty(len(strata), dtype=np.int64)
    #: Rows of each stratum in each fold.
    held = np.zeros((used, len(names)), dtype=np.int64)
    members = np.split(np.argsort(units, kind="stable"), np.cumsum(sizes)[:-1])
    order = np.random.default_rng([seed, _PURPOSE]).permutation(np.flatnonzero(sizes > 1))
    for unit in order[np.argsort(-sizes[order], kind="stable")]:
        of_unit = np.bincount(strata[members[unit]], minlength=len(names))
        cost = (held * of_unit / rows_in).sum(1).round(9)
        fold = min(range(used), key=lambda fold: (cost[fold], held[fold].sum()))
        held[fold] += of_unit
        folds[members[unit]] = fold
    totals = held.sum(1).tolist()
    for stratum, name in enumerate(names):
        rows = np.flatnonzero((strata == stratum) & (sizes[units] == 1))
        counts = held[:, stratum].tolist()
        for row in np.random.default_rng([seed, int(name), _PURPOSE]).permutation(rows):
            fold = min(range(used), key=lambda fold: (counts[fold], totals[fold]))
            counts[fold] += 1
            totals[fold] += 1
            folds[row] = fold
    return folds
