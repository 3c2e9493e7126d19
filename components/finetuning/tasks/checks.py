"""Checks of labelled data that every task needs: what the splits share, how many labels there are."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.errors import DataError
from components.finetuning.tasks.base import Fields, Labels, Split
from components.formats.textkey import text_key

#: What `budgets: [all]` is called where budgets are numbers.
ALL = -1


def row_key(parts: Fields) -> str:
    """What two rows share that say the same: their parts without case, punctuation and white space."""
    return "\x1f".join(map(text_key, parts))


def split_off_dev(train: Split, *, share: float, key: str) -> tuple[Split, Split]:
    """Set apart about `share` of train as dev, chosen by a hash of the input: twins stay together, and the choice does
    not change when rows are added or reordered.

    Raises:
        DataError: the share leaves dev or train without rows.
    """

    def chosen(parts: Fields) -> bool:
        digest = hashlib.blake2b(row_key(parts).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") < share * 2**64

    flags = np.fromiter((chosen(parts) for parts in train.fields), dtype=bool, count=len(train))
    if flags.all() or not flags.any():
        raise DataError(
            f"{key}.dev_share: {share} of {len(train)} rows leaves {'no' if flags.all() else 'all'} rows for train; "
            f"name a dev file ({key}.dev) or choose another share"
        )
    return train.take(np.flatnonzero(~flags)), train.take(np.flatnonzero(flags))


def without_overlap(
    train: Split, dev: Split, test: Split, *, rule: str, counts: dict[str, int], where: Path, key: str
) -> tuple[Split, Split]:
    """Train and dev without the inputs that stand in a later split too (equal but for case, punctuation, white space).

    With rule `drop` they go; `report` only counts them; `refuse` raises. `counts` gets the numbers.

    Raises:
        DataError: rule `refuse`, and an input stands in two splits.
    """
    keys = {
        name: [row_key(parts) for parts in split.fields]
        for name, split in (("train", train), ("dev", dev), ("test", test))
    }
    in_test = set(keys["test"])
    in_both = in_test | set(keys["dev"])
    twins = {
        "train": np.asarray([text in in_both for text in keys["train"]], dtype=bool),
        "dev": np.asarray([text in in_test for text in keys["dev"]], dtype=bool),
    }
    for name, flags in twins.items():
        counts[f"{name}_rows_in_later_splits"] = int(flags.sum())
    total = sum(int(flags.sum()) for flags in twins.values())
    if rule == "refuse" and total:
        name, split = ("train", train) if twins["train"].any() else ("dev", dev)
        first = int(np.flatnonzero(twins[name])[0])
        place = f" (line {split.lines[first]})" if split.lines else ""
        raise DataError(
            f"{where}: {total} row(s) of train and dev stand in a later split too, the first in {name}{place}: "
            f"{' | '.join(split.fields[first])[:60]!r}; remove them, or set {key}.overlap to drop or report"
        )
    if rule == "drop":
        train, dev = train.take(np.flatnonzero(~twins["train"])), dev.take(np.flatnonzero(~twins["dev"]))
        if not len(train) or not len(dev):
            raise DataError(
                f"{where}: nothing is left of {'dev' if len(train) else 'train'} without the texts that stand in a "
                f"later split; the files seem to be copies of each other"
            )
    return train, dev


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
