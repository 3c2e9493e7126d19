"""Builds the splits of a task of any kind from validated rows: unique ids, dev split, overlap between splits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.errors import DataError
from components.formats.textkey import text_key
from components.scoring.intervals import MIN_GROUPS
from components.settings.tasks import AUTO, SPLITS, TaskSource
from components.tasks.data import Examples, Fields, Split
from components.tasks.documents import in_documents
from components.tasks.reading.records import Position

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
    """Key of a row's text, equal for rows that differ in case, punctuation and white space only."""
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
    """The splits of a task, validated together.

    Args:
        name: of the task.
        source: its block in params.yaml.
        rows: split -> rows; `dev` and `test` are missing if they have no files.
        labels: names of the labels.
        target: row -> target as numbers.
        every_label: whether each label must remain in train (the target is then the index of a label).
        key: row -> key; rows with the same key are duplicates.
        group: row -> group; the rows of a group are either all in train or all in dev. Default: `key`.
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
        label = target if every_label else None
        splits["train"], splits["test"] = _test_apart(splits["train"], source, group or key, label, block)
        counts["test_rows_held_out"] = len(splits["test"])
    if isinstance(source.languages, dict):
        # Files without a column of slices: the slices of test are the languages of its files.
        splits["test"] = [replace(row, slice=source.language_of(row.position.path)) for row in splits["test"]]
    if "dev" not in splits and source.selection == "budget":
        # No choice is made on dev, and its labels would be missing in train.
        splits["dev"] = []
    elif "dev" not in splits:
        splits["train"], splits["dev"] = _dev_apart(splits["train"], source.dev_share, group or key, block)
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
    # After overlaps are dropped, so that no text of test is context in train. Rows that are not used stay context.
    splits = {split: _in_documents(found) for split, found in splits.items()}
    for split, most in (("dev", source.dev_rows), ("test", source.test_rows)):
        if most is not None and len(splits[split]) > most:
            counts[f"{split}_rows_unused"] = len(splits[split]) - most
            chosen = np.random.default_rng(0).permutation(len(splits[split]))[:most]
            splits[split] = [splits[split][row] for row in np.sort(chosen)]
    groups = _groups(splits, source)
    made = {split: _split(splits[split], target, groups[split]) for split in SPLITS}
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


def _dev_apart(train: list[Row], share: float, group: Callable[[Row], str], block: str) -> tuple[list[Row], list[Row]]:
    """Split off about `share` of train as dev by a hash of the row's group: duplicates stay together, and the split of
    a row does not change when rows are added or reordered."""

    def chosen(row: Row) -> bool:
        digest = hashlib.blake2b(group(row).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") < share * 2**64

    flags = [chosen(row) for row in train]
    if all(flags) or not any(flags):
        raise DataError(
            f"{block}.dev_share: {share} of {len(train)} rows leaves {'no' if all(flags) else 'all'} rows for train; "
            f"name a dev file ({block}.dev) or choose another share"
        )
    return (
        [row for row, flag in zip(train, flags, strict=True) if not flag],
        [row for row, flag in zip(train, flags, strict=True) if flag],
    )


def _test_apart(
    train: list[Row],
    source: TaskSource,
    group: Callable[[Row], str],
    target: Callable[[Row], Sequence[float]] | None,
    block: str,
) -> tuple[list[Row], list[Row]]:
    """Split off about `test_share` of train as test by a hash of the row's group, another than that of dev.

    Args:
        train: the rows.
        source: of the task.
        group: row -> group, all of whose rows are in the same split.
        target: row -> its label; labels all of whose rows would be in test stay in train. None: rows have no label.
        block: of the task in params.yaml.

    Raises:
        DataError: no row is left for train or for test.
    """
    bound = source.test_share * 2**64

    def chosen(row: Row) -> bool:
        digest = hashlib.blake2b(group(row).encode(), digest_size=8, person=b"test").digest()
        return int.from_bytes(digest, "little") < bound

    flags = [chosen(row) for row in train]
    if target is not None:
        labels = [int(target(row)[0]) for row in train]
        left = {label for label, flag in zip(labels, flags, strict=True) if not flag}
        flags = [flag and label in left for label, flag in zip(labels, flags, strict=True)]
    if all(flags) or not any(flags):
        raise DataError(
            f"{block}.test_share: {source.test_share} of {len(train)} rows leaves {'no' if all(flags) else 'all'} rows "
            f"for train; name a test file ({block}.test), add rows or choose another share"
        )
    return (
        [row for row, flag in zip(train, flags, strict=True) if not flag],
        [row for row, flag in zip(train, flags, strict=True) if flag],
    )


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


def _groups(splits: Rows, source: TaskSource) -> dict[str, list[str | None]]:
    """The clusters of the rows of every split. With `group: auto` and no column of clusters, the slices are the
    clusters, unless test has fewer of them than the variance between clusters needs."""
    found = {split: [row.group for row in rows] for split, rows in splits.items()}
    if source.group == AUTO and source.languages is None and not any(any(names) for names in found.values()):
        slices = {split: [row.slice for row in rows] for split, rows in splits.items()}
        if len(set(slices["test"]) - {None}) >= MIN_GROUPS:
            return slices
    return found


def _in_documents(rows: list[Row]) -> list[Row]:
    """Rows whose sentences know their documents; a document is in one file."""
    documents = [None if row.document is None else (row.position.path, row.document) for row in rows]
    if not any(documents):
        return rows
    found = in_documents([row.fields for row in rows], documents)
    return [replace(row, fields=fields) for row, fields in zip(rows, found, strict=True)]


def _split(rows: list[Row], target: Callable[[Row], Sequence[float]], groups: list[str | None]) -> Split:
    return Split(
        fields=[row.fields for row in rows],
        targets=[np.asarray(target(row), dtype=np.float64) for row in rows],
        slices=[row.slice for row in rows],
        ids=[row.id if row.id is not None else f"{Path(row.position.path).name}:{row.position.line}" for row in rows],
        groups=groups,
        lines=[row.position.line for row in rows],
    )
