"""Builds the splits of a task of any kind from validated rows: unique ids, dev split, overlap between splits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.errors import DataError
from components.formats import textkey
from components.scoring.intervals import MIN_GROUPS
from components.settings.tasks import AUTO, SPLITS, TaskSource
from components.tasks.data import Examples, Fields, Labels, Split
from components.tasks.reading.records import Position
from components.tasks.units import units_of

Rows = dict[str, list["Row"]]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One row before its labels have indices; the type of `target` depends on the kind."""

    fields: Fields
    target: Any
    slice: str | None
    id: str | None
    position: Position
    group: str | None = None
    document: str | None = None


def train_of(source: TaskSource) -> str:
    """Path of the train file (or files), for messages."""
    return f"{source.path}/{' + '.join(source.files('train'))}"


def row_key(row: Row) -> str:
    """Key of a row's text, equal for copies (`components.formats.textkey`)."""
    return textkey.row_key(row.fields)


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
    """The splits of a task, validated together.

    Args:
        name: of the task.
        source: its block in params.yaml.
        rows: split -> rows; `dev` and `test` are missing if they have no files.
        labels: names of the labels.
        target: row -> target as numbers.
        every_label: whether each label must remain in train (the target is then the index of a label).
        key: row -> key; rows with the same key are duplicates.
        group: row -> key that joins rows in a unit, as a context does its questions. Default: `key`.
        counts: counts of the reader, by reason.

    Raises:
        DataError: two rows of a split have the same id; no row of train or dev is left; a row is in two splits and
            `data.tasks.<name>.overlap` is `refuse`; a label has no rows in train once these are dropped; a key of
            `label_texts` is not a label.
    """
    block = f"data.tasks.{name}"
    if unknown := sorted(source.label_texts.keys() - set(labels)):
        known = f"the labels are {', '.join(labels)}" if labels else f"a task of kind {source.kind} has none"
        raise DataError(f"{block}.label_texts: {unknown[0]!r} is not a label; {known}")
    counts = dict(counts or {})
    _refuse_twin_ids(rows)
    splits = dict(rows)
    if "test" not in splits:
        splits["train"], splits["test"] = _apart(
            splits["train"],
            source.test_share,
            _unit_names(splits["train"], group or key),
            key=f"{block}.test_share",
            kept=(lambda row: int(target(row)[0])) if every_label else None,
        )
        counts["test_rows_held_out"] = len(splits["test"])
    if isinstance(source.languages, dict):
        # Files without a column of slices: the slices of test are the languages of its files.
        splits["test"] = [replace(row, slice=source.language_of(row.position.path)) for row in splits["test"]]
    if "dev" not in splits and source.selection == "budget":
        # No choice is made on dev, and its labels would be missing in train.
        splits["dev"] = []
    elif "dev" not in splits:
        names = _unit_names(splits["train"], group or key)
        splits["train"], splits["dev"] = _apart(splits["train"], source.dev_share, names, key=f"{block}.dev_share")
    _settle_overlap(splits, source, key, counts, block)
    if every_label:
        left = {int(target(row)[0]) for row in splits["train"]}
        missing = sorted(set(range(len(labels))) - left)
        if missing:
            ways = ["add some"]
            ways += [] if source.files("dev") else [f"name a dev file ({block}.dev)"]
            ways += [f"set {block}.overlap to report"] if source.overlap == "drop" else []
            raise DataError(
                f"{train_of(source)}: no example of {labels[missing[0]]!r} is left once duplicates of dev and test "
                f"are dropped; {', or '.join(ways)}"
            )
    counts |= _repeated(splits, key)
    for split, most in (("dev", source.dev_rows), ("test", source.test_rows)):
        if most is not None and len(splits[split]) > most:
            counts[f"{split}_rows_unused"] = len(splits[split]) - most
            chosen = np.random.default_rng(0).permutation(len(splits[split]))[:most]
            splits[split] = [splits[split][row] for row in np.sort(chosen)]
    groups = _groups(splits, source)
    units = _units(splits, groups, group or key)
    made = {split: _split(splits[split], target, groups[split], units[split]) for split in SPLITS}
    return Examples(labels, made["train"], made["dev"], made["test"], counts)


def refuse_unseen(rows: Rows, source: TaskSource, seen: set[str], names: Callable[[Row], Sequence[str]]) -> None:
    """Check that every label of dev and test occurs in train.

    Args:
        rows: split -> rows.
        source: of the task.
        seen: labels of train.
        names: row -> labels.

    Raises:
        DataError: a label of dev or test does not occur in train (file and line).
    """
    train = " + ".join(source.files("train"))
    for split in ("dev", "test"):
        for row in rows.get(split, []):
            for name in names(row):
                if name not in seen:
                    raise DataError(
                        f"{row.position}: label {name!r} does not occur in {train}; correct it, "
                        f"or add examples of it to {train}"
                    )


def _refuse_twin_ids(rows: Rows) -> None:
    for found in rows.values():
        first: dict[str, Position] = {}
        for row in found:
            if row.id is not None and first.setdefault(row.id, row.position) is not row.position:
                named = [other.id for other in found if other.id is not None]
                count = len(named) - len(set(named))
                there = first[row.id]
                where = f"{there.unit} {there.line}" if there.path == row.position.path else str(there)
                raise DataError(
                    f"{row.position}: id {row.id!r} is also on {where} "
                    f"({count} row(s) repeat an id); make the ids distinct, or name no id column"
                )


def _apart(
    rows: list[Row], share: float, names: Sequence[str], *, key: str, kept: Callable[[Row], int] | None = None
) -> tuple[list[Row], list[Row]]:
    """Split off about a share of the rows by a hash of the name of each row's unit: the rows of a unit stay together,
    and the split of a row does not change when rows are added or reordered.

    Args:
        rows: to divide.
        share: of the rows that are split off.
        names: of each row's unit.
        key: of the share in params.yaml; dev and test have different hashes.
        kept: row -> its label; units with a label that would have no rows left are not split off. None: rows have no
            label.

    Raises:
        DataError: no row is left on one side.
    """
    what = key.rpartition(".")[2].removesuffix("_share")
    person = b"test" if what == "test" else b""

    def place(name: str) -> float:
        digest = hashlib.blake2b(name.encode(), digest_size=8, person=person).digest()
        return int.from_bytes(digest, "little") / 2**64

    places = {name: place(name) for name in set(names)}
    grouped = len(places) < len(rows)
    apart = {name for name, at in places.items() if at < share}
    if grouped and not apart:
        # Few groups, none of which is below the share by chance.
        apart = {min(places, key=places.__getitem__)}
    if kept is not None:
        labels = [kept(row) for row in rows]
        left = {label for label, name in zip(labels, names, strict=True) if name not in apart}
        apart -= {name for label, name in zip(labels, names, strict=True) if label not in left}
    flags = [name in apart for name in names]
    if all(flags) or not any(flags):
        among = f" in {len(places)} groups" if grouped else ""
        raise DataError(
            f"{key}: {share} of {len(rows)} rows{among} leaves {'no' if all(flags) else 'all'} rows for train; name a "
            f"{what} file ({key.removesuffix('_share')}), add {'groups' if among else 'rows'} or choose another share"
        )
    return (
        [row for row, flag in zip(rows, flags, strict=True) if not flag],
        [row for row, flag in zip(rows, flags, strict=True) if flag],
    )


def _document(row: Row) -> tuple[str, str] | None:
    """A document is in one file."""
    return None if row.document is None else (row.position.path, row.document)


def _unit_names(rows: Sequence[Row], key: Callable[[Row], str]) -> list[str]:
    """A name for each row's unit (`components.tasks.units`): that of a group, a document or a text in it."""
    keys = [key(row) for row in rows]
    units = units_of(keys, [row.group or None for row in rows], list(map(_document, rows)))
    names: dict[int, tuple[int, str]] = {}
    for unit, row, text in zip(units.tolist(), rows, keys, strict=True):
        name = (2, text)
        if row.group:
            name = (0, f"group {row.group}")
        elif row.document is not None:
            name = (1, f"document {row.document} {Path(row.position.path).name}")
        names[unit] = min(name, names.get(unit, name))
    return [names[unit][1] for unit in units.tolist()]


def _units(splits: Rows, groups: Mapping[str, list[str | None]], key: Callable[[Row], str]) -> dict[str, Labels]:
    """The units of the rows of every split, numbered together. Slices that stand for groups (`group: auto`) and are in
    train and in test are no units: test asks for the same slices again."""
    names = {split: groups[split] for split in SPLITS}
    if not any(row.group for split in SPLITS for row in splits[split]) and {*names["train"]} & {*names["test"]}:
        names = {split: [None] * len(splits[split]) for split in SPLITS}
    rows = [row for split in SPLITS for row in splits[split]]
    flat = [name or None for split in SPLITS for name in names[split]]
    numbers = units_of(list(map(key, rows)), flat, list(map(_document, rows)))
    ends = np.cumsum([len(splits[split]) for split in SPLITS])
    return dict(zip(SPLITS, np.split(numbers, ends[:-1]), strict=True))


def _settle_overlap(
    splits: Rows, source: TaskSource, key: Callable[[Row], str], counts: dict[str, int], block: str
) -> None:
    """Drop, count or refuse rows of train and dev that are also in a later split; modifies `splits` and `counts`."""
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
            f"{source.path}: {total} row(s) of train and dev are also in a later split, the first in {split} "
            f"({first.position.unit} {first.position.line}): {' | '.join(first.fields)[:60]!r}; remove them, or set "
            f"{block}.overlap to drop or report"
        )
    if source.overlap == "drop":
        for split, flags in twins.items():
            splits[split] = [row for row, flag in zip(splits[split], flags, strict=True) if not flag]
            if flags and not splits[split]:
                raise DataError(
                    f"{source.path}: no rows are left in {split} without those that are also in a later split; "
                    f"the files seem to be copies of each other"
                )


def _repeated(splits: Rows, key: Callable[[Row], str]) -> dict[str, int]:
    """Counts of rows that are not independent of others: copies within train, and groups of test in train."""
    of_test = {row.group for row in splits["test"] if row.group}
    found = {
        "train_rows_repeated": len(splits["train"]) - len(set(map(key, splits["train"]))),
        "train_rows_in_groups_of_test": sum(row.group in of_test for row in splits["train"]),
    }
    return {name: count for name, count in found.items() if count}


def _groups(splits: Rows, source: TaskSource) -> dict[str, list[str | None]]:
    """The clusters of the rows of every split. With `group: auto` and no column of clusters, the slices are the
    clusters, unless test has fewer of them than the variance between clusters needs."""
    found = {split: [row.group for row in rows] for split, rows in splits.items()}
    if source.group == AUTO and source.languages is None and not any(any(names) for names in found.values()):
        slices = {split: [row.slice for row in rows] for split, rows in splits.items()}
        if len(set(slices["test"]) - {None}) >= MIN_GROUPS:
            return slices
    return found


def _split(rows: list[Row], target: Callable[[Row], Sequence[float]], groups: list[str | None], units: Labels) -> Split:
    return Split(
        fields=[row.fields for row in rows],
        targets=[np.asarray(target(row), dtype=np.float64) for row in rows],
        slices=[row.slice for row in rows],
        ids=[row.id if row.id is not None else f"{Path(row.position.path).name}:{row.position.line}" for row in rows],
        groups=groups,
        lines=[row.position.line for row in rows],
        known_units=units,
    )
