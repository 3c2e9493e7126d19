"""From checked rows to the splits of a task: ids, a dev split, what splits share. The same for every kind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.errors import DataError
from components.formats.textkey import text_key
from components.settings.tasks import SPLITS, TaskSource
from components.tasks.data import Examples, Fields, Split
from components.tasks.reading.records import Place

Rows = dict[str, list["Row"]]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One example before its labels have numbers; `target` is what the kind makes of it."""

    fields: Fields
    target: Any
    slice: str | None
    id: str | None
    place: Place


def train_of(source: TaskSource) -> str:
    """Path of the train file (or files), for messages."""
    return f"{source.path}/{' + '.join(source.files('train'))}"


def row_key(row: Row) -> str:
    """When two rows count as the same: equal but for case, punctuation and white space, part by part."""
    return "\x1f".join(map(text_key, row.fields))


def examples_of(
    name: str,
    source: TaskSource,
    rows: Rows,
    *,
    labels: list[str],
    target: Callable[[Row], Sequence[float]],
    every_label: bool = False,
    key: Callable[[Row], str] = row_key,
    group: Callable[[Row], str] | None = None,
    counts: dict[str, int] | None = None,
) -> Examples:
    """The splits of a task, checked against each other.

    Args:
        name: of the task.
        source: its block in params.yaml.
        rows: of train and test, and of dev if it has files of its own.
        labels: their names.
        target: what a row is to be answered with, in numbers.
        every_label: each label has to be left in train (a target is then the number of a label).
        key: rows with one key are the same example.
        group: rows of one group go to train together, or to dev; `key` if not given.
        counts: what reading met on the way.

    Raises:
        DataError: two rows of a split with one id; no rows for train or dev; rows in two splits where
            `data.tasks.<name>.overlap` is `refuse`; a label that loses all its rows of train to it.
    """
    place = f"data.tasks.{name}"
    counts = dict(counts or {})
    _refuse_twin_ids(rows)
    splits = dict(rows)
    if "dev" not in splits:
        splits["train"], splits["dev"] = _dev_apart(splits["train"], source.dev_share, group or key, place)
    _settle_overlap(splits, source, key, counts, place)
    if every_label:
        left = {int(target(row)[0]) for row in splits["train"]}
        missing = sorted(set(range(len(labels))) - left)
        if missing:
            ways = ["add some"]
            ways += [] if source.files("dev") else [f"name a dev file ({place}.dev)"]
            ways += [f"set {place}.overlap to report"] if source.overlap == "drop" else []
            raise DataError(
                f"{train_of(source)}: no example of {labels[missing[0]]!r} is left after setting apart what stands in "
                f"dev or test; {', or '.join(ways)}"
            )
    for split, most in (("dev", source.dev_rows), ("test", source.test_rows)):
        if most is not None and len(splits[split]) > most:
            counts[f"{split}_rows_unused"] = len(splits[split]) - most
            chosen = np.random.default_rng(0).permutation(len(splits[split]))[:most]
            splits[split] = [splits[split][row] for row in np.sort(chosen)]
    made = {split: _split(splits[split], target) for split in SPLITS}
    return Examples(labels, made["train"], made["dev"], made["test"], counts)


def refuse_unseen(rows: Rows, source: TaskSource, seen: set[str], names: Callable[[Row], Sequence[str]]) -> None:
    """A label that only dev or test has cannot be learned.

    Args:
        rows: of the splits.
        source: of the task.
        seen: labels of train.
        names: a row's labels.

    Raises:
        DataError: there is one; the message has its file and line.
    """
    train = " + ".join(source.files("train"))
    for split in ("dev", "test"):
        for row in rows.get(split, []):
            for name in names(row):
                if name not in seen:
                    raise DataError(
                        f"{row.place}: label {name!r} does not occur in {train}; correct it, "
                        f"or add examples of it to {train}"
                    )


def _refuse_twin_ids(rows: Rows) -> None:
    for found in rows.values():
        first: dict[str, Place] = {}
        for row in found:
            if row.id is not None and first.setdefault(row.id, row.place) is not row.place:
                named = [other.id for other in found if other.id is not None]
                count = len(named) - len(set(named))
                there = first[row.id]
                where = f"{there.unit} {there.line}" if there.path == row.place.path else str(there)
                raise DataError(
                    f"{row.place}: id {row.id!r} stands on {where} too "
                    f"({count} row(s) repeat an id); ids have to differ, or name no id column"
                )


def _dev_apart(train: list[Row], share: float, group: Callable[[Row], str], place: str) -> tuple[list[Row], list[Row]]:
    """About `share` of train as dev, chosen by a hash of the row's group: twins stay together, and the choice does not
    change when rows are added or reordered."""

    def chosen(row: Row) -> bool:
        digest = hashlib.blake2b(group(row).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") < share * 2**64

    flags = [chosen(row) for row in train]
    if all(flags) or not any(flags):
        raise DataError(
            f"{place}.dev_share: {share} of {len(train)} rows leaves {'no' if all(flags) else 'all'} rows for train; "
            f"name a dev file ({place}.dev) or choose another share"
        )
    return (
        [row for row, flag in zip(train, flags, strict=True) if not flag],
        [row for row, flag in zip(train, flags, strict=True) if flag],
    )


def _settle_overlap(
    splits: Rows, source: TaskSource, key: Callable[[Row], str], counts: dict[str, int], place: str
) -> None:
    """Rows of train and dev that stand in a later split too: dropped, counted only, or refused; `splits` and `counts`
    are changed in place."""
    keys = {split: [key(row) for row in splits[split]] for split in SPLITS}
    in_test = set(keys["test"])
    later = {"train": in_test | set(keys["dev"]), "dev": in_test}
    twins = {split: [one in known for one in keys[split]] for split, known in later.items()}
    for split, flags in twins.items():
        counts[f"{split}_rows_in_later_splits"] = sum(flags)
    total = sum(map(sum, twins.values()))
    if source.overlap == "refuse" and total:
        split = "train" if any(twins["train"]) else "dev"
        first = splits[split][twins[split].index(True)]
        raise DataError(
            f"{source.path}: {total} row(s) of train and dev stand in a later split too, the first in {split} "
            f"({first.place.unit} {first.place.line}): {' | '.join(first.fields)[:60]!r}; remove them, or set "
            f"{place}.overlap to drop or report"
        )
    if source.overlap == "drop":
        for split, flags in twins.items():
            splits[split] = [row for row, flag in zip(splits[split], flags, strict=True) if not flag]
        for split in twins:
            if not splits[split]:
                raise DataError(
                    f"{source.path}: nothing is left of {split} without the texts that stand in a later split; "
                    f"the files seem to be copies of each other"
                )


def _split(rows: list[Row], target: Callable[[Row], Sequence[float]]) -> Split:
    return Split(
        fields=[row.fields for row in rows],
        targets=[np.asarray(target(row), dtype=np.float64) for row in rows],
        slices=[row.slice for row in rows],
        ids=[row.id if row.id is not None else f"{Path(row.place.path).name}:{row.place.line}" for row in rows],
        lines=[row.place.line for row in rows],
    )
