"""Builds the splits of a task of any kind from validated rows: unique ids, dev split, overlap between splits."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from components.core.errors import DataError
from components.data.formats import textkey
from components.data.formats.tables import as_text
from components.data.scoring.intervals import MIN_GROUPS
from components.data.tasks.data import Examples, Fields, Labels, Split, units_of
from components.data.tasks.reading.records import Origin, Position, Record, filled_all, is_blank
from components.settings.tasks import AUTO, SPLITS, TaskSource

Rows = dict[str, list["Row"]]


@dataclass(frozen=True)
class Row:
    """One row before its labels have indices; the type of `target` depends on the kind.

    Attributes:
        own_key: key of the input, equal for copies; empty: `components.data.formats.textkey.row_key`.
        joined: key that joins rows in a unit, as a context does its questions; empty: `key`.
    """

    fields: Fields
    target: Any
    origin: Origin
    own_key: str = ""
    joined: str = ""

    @cached_property
    def key(self) -> str:
        """Key of the input, equal for copies."""
        return self.own_key or textkey.row_key(self.fields)

    @property
    def document(self) -> tuple[str, str] | None:
        return None if self.origin.document is None else (self.origin.position.path, self.origin.document)


def with_labels(
    records: Iterable[tuple[str, Record]],
    source: TaskSource,
    columns: Sequence[str],
    counts: Counter[str],
    unlabelled: list[Row],
    *,
    lacks: Callable[[Any], bool] = is_blank,
) -> Iterator[tuple[str, Fields, Any, Origin]]:
    """(split, texts, label, origin) of records that end with a label. With `no_label: drop`, records whose label
    `lacks` are counted, and those of train added to `unlabelled`.

    Raises:
        DataError: a text is empty (file and line).
    """
    what = ("text",) if len(columns) == 1 else ("first text", "second text")
    for split, record in records:
        value, origin = record.values[-1], record.origin
        if source.no_label == "drop" and lacks(value):
            counts[f"{split}_rows_without_label"] += 1
            texts = [as_text(each, origin) or "" for each in record.values[: len(columns)]]
            if split == "train" and not any(map(is_blank, texts)):
                unlabelled.append(Row(tuple(texts), None, origin))
        else:
            yield split, filled_all(record, columns, what), value, origin


#: Share of train that becomes dev if there is no dev file and choices are made on dev.
DEV_SHARE = 0.1


def train_of(source: TaskSource) -> str:
    return f"{source.path}/{' + '.join(source.files('train'))}"


def unusable(name: str, source: TaskSource, column: str, what: str) -> DataError:
    """The error about files of train from which nothing can be learned; `column`: the key that names it."""
    return DataError(what, where=train_of(source), key=f"data.tasks.{name}.{column}", do="check {key}")


def examples_of(
    name: str,
    source: TaskSource,
    rows: Rows,
    *,
    labels: list[str],
    target: Callable[[Row], Sequence[float]],
    every_label: bool = False,
    counts: Mapping[str, int] | None = None,
    unlabelled: Sequence[Row] = (),
) -> Examples:
    """The splits of a task, validated together.

    Args:
        rows: split -> rows; `dev` and `test` are missing if they have no files.
        target: row -> target as numbers.
        every_label: whether each label must remain in train (the target is then the index of a label).
        unlabelled: rows of train without a label.

    Raises:
        DataError: two rows of a split have the same id; no row of train or dev is left; a row is in two splits and
            `data.tasks.<name>.overlap` is `refuse`; a label has no rows in train once these are dropped; a key of
            `label_texts` is not a label.
    """
    block = f"data.tasks.{name}"
    if unknown := sorted(source.label_texts.keys() - set(labels)):
        given = f"the labels are {', '.join(labels)}" if labels else f"a task of kind {source.kind} has none"
        raise DataError(f"{block}.label_texts: {unknown[0]!r} is not a label; {given}")
    counts = dict(counts or {})
    _refuse_twin_ids(rows)
    splits = dict(rows)
    label = (lambda row: int(target(row)[0])) if every_label else None
    if "test" not in splits:
        splits["train"], splits["test"] = _apart(splits["train"], source.test_share, f"{block}.test_share", kept=label)
        counts["test_rows_held_out"] = len(splits["test"])
    if "dev" not in splits and source.selection == "budget":
        # No choice is made on dev, and its labels would be missing in train.
        splits["dev"] = []
    elif "dev" not in splits:
        splits["train"], splits["dev"] = _apart(splits["train"], DEV_SHARE, f"{block}.dev")
    _settle_overlap(splits, source, counts, block)
    if label is not None and (missing := sorted(set(range(len(labels))) - set(map(label, splits["train"])))):
        ways = ["add some"]
        ways += [] if source.files("dev") else [f"name a dev file ({block}.dev)"]
        ways += ["set {key} to report"] if source.overlap == "drop" else []
        raise DataError(
            f"no example of {labels[missing[0]]!r} is left once duplicates of dev and test are dropped",
            where=train_of(source),
            key=f"{block}.overlap",
            do=", or ".join(ways),
        )
    counts |= _repeated(splits)
    groups = {row.origin.group for of_split in rows.values() for row in of_split if row.origin.group is not None}
    without = [row.fields for row in unlabelled if row.origin.group not in groups]
    return Examples(labels, **_finished(splits, source, target, counts), counts=counts, unlabelled=without)


def _finished(
    splits: Rows, source: TaskSource, target: Callable[[Row], Sequence[float]], counts: dict[str, int]
) -> dict[str, Split]:
    """The splits with at most `dev_rows` and `test_rows` rows, their slices, groups and units."""
    if isinstance(source.languages, dict):
        # Files without a column of slices: the slices of test are the languages of its files.
        origins = [replace(row.origin, slice=source.language_of(row.origin.position.path)) for row in splits["test"]]
        splits["test"] = [replace(row, origin=new) for row, new in zip(splits["test"], origins, strict=True)]
    for split, most in (("dev", source.dev_rows), ("test", source.test_rows)):
        if most is not None and len(splits[split]) > most:
            counts[f"{split}_rows_unused"] = len(splits[split]) - most
            chosen = np.random.default_rng(0).permutation(len(splits[split]))[:most]
            splits[split] = [splits[split][row] for row in np.sort(chosen)]
    groups = _groups(splits, source)
    units = _units(splits, groups)
    return {
        split: Split(
            fields=[row.fields for row in splits[split]],
            targets=[np.asarray(target(row), dtype=np.float64) for row in splits[split]],
            slices=[row.origin.slice for row in splits[split]],
            ids=[_id(row.origin) for row in splits[split]],
            groups=groups[split],
            lines=[row.origin.position.line for row in splits[split]],
            known_units=units[split],
        )
        for split in SPLITS
    }


def _id(origin: Origin) -> str:
    return origin.id if origin.id is not None else f"{Path(origin.position.path).name}:{origin.position.line}"


def unseen_labels(
    rows: Rows, source: TaskSource, seen: Set[str], names: Callable[[Row], Sequence[str]], counts: Counter[str]
) -> set[str]:
    """The labels of dev and test that train lacks. Their rows are counted; every answer to them is wrong.

    Raises:
        DataError: at least half of the rows of a split have such labels, so train or the column is another one (file
            and line).
    """
    unseen: set[str] = set()
    train = " + ".join(source.files("train"))
    for split in ("dev", "test"):
        lacking = [(row, {*names(row)} - seen) for row in rows.get(split, [])]
        lacking = [(row, labels) for row, labels in lacking if labels]
        if lacking and 2 * len(lacking) >= len(rows[split]):
            row, labels = lacking[0]
            raise DataError(
                f"label {min(labels)!r} does not occur in {train}; correct it, or add examples of it to {train}",
                where=row.origin,
            )
        if lacking:
            counts[f"{split}_rows_with_unseen_label"] = len(lacking)
            unseen |= set().union(*(labels for _, labels in lacking))
    return unseen


def _refuse_twin_ids(rows: Rows) -> None:
    for of_split in rows.values():
        first: dict[str, Position] = {}
        for row in of_split:
            position, ours = row.origin.position, row.origin.id
            if ours is not None and (there := first.setdefault(ours, position)) is not position:
                named = [other.origin.id for other in of_split if other.origin.id is not None]
                where = f"{there.unit} {there.line}" if there.path == position.path else str(there)
                raise DataError(
                    f"id {ours!r} is also on {where} ({len(named) - len(set(named))} row(s) repeat an id); "
                    "make the ids distinct, or name no id column",
                    where=position,
                )


def _apart(
    rows: list[Row], share: float, key: str, *, kept: Callable[[Row], int] | None = None
) -> tuple[list[Row], list[Row]]:
    """Split off about a share of the rows by a hash of the name of each row's unit: the rows of a unit stay together,
    and the split of a row does not change when rows are added or reordered.

    Args:
        key: of the share in params.yaml; dev and test have different hashes.
        kept: row -> its label; units with a label that would have no rows left are not split off. None: rows have no
            label.
    """
    names = _unit_names(rows)
    what = key.rpartition(".")[2].removesuffix("_share")
    person = b"test" if what == "test" else b""

    def place(name: str) -> float:
        digest = hashlib.blake2b(name.encode(), digest_size=8, person=person).digest()
        return int.from_bytes(digest, "little") / 2**64

    places = {name: place(name) for name in set(names)}
    grouped = len(places) < len(rows)
    apart = {name for name, at in places.items() if at < share}
    if kept is not None:
        labels = [kept(row) for row in rows]
        left = {label for label, name in zip(labels, names, strict=True) if name not in apart}
        apart -= {name for label, name in zip(labels, names, strict=True) if label not in left}
    if not apart:
        # Few units, none of which is below the share by chance.
        apart = _nearest_unit(places, names, [] if kept is None else labels)
    flags = [name in apart for name in names]
    if all(flags) or not any(flags):
        among = f" in {len(places)} groups" if grouped else ""
        raise DataError(
            f"{share} of {len(rows)} rows{among} leaves {'no' if all(flags) else 'all'} rows for train, since every "
            f"label needs a row in train and another in {what}",
            where=key,
            key=key,
            do=f"name a {what} file ({key.rpartition('.')[0]}.{what}) or add {'groups' if among else 'rows'}",
        )
    return (
        [row for row, flag in zip(rows, flags, strict=True) if not flag],
        [row for row, flag in zip(rows, flags, strict=True) if flag],
    )


def _nearest_unit(places: Mapping[str, float], names: Sequence[str], labels: Sequence[int]) -> set[str]:
    """The unit with the lowest place without which every label has rows; empty if there is none."""
    for unit in sorted(places, key=places.__getitem__):
        left = {label for label, name in zip(labels, names, strict=True) if name != unit} if labels else set()
        if len(places) > 1 and left == set(labels):
            return {unit}
    return set()


def _unit_names(rows: Sequence[Row]) -> list[str]:
    """A name for each row's unit (`components.data.tasks.data`): of a group, a document or a text in it."""
    keys = [row.joined or row.key for row in rows]
    units = units_of(keys, [row.origin.group or None for row in rows], [row.document for row in rows])
    names: dict[int, tuple[int, str]] = {}
    for unit, row, text in zip(units.tolist(), rows, keys, strict=True):
        name = (2, text)
        if row.origin.group:
            name = (0, f"group {row.origin.group}")
        elif row.origin.document is not None:
            name = (1, f"document {row.origin.document} {Path(row.origin.position.path).name}")
        names[unit] = min(name, names.get(unit, name))
    return [names[unit][1] for unit in units.tolist()]


def _units(splits: Rows, groups: Mapping[str, list[str | None]]) -> dict[str, Labels]:
    """The units of all rows, numbered together. Slices for `group: auto` in train and test are no units."""
    rows = [row for split in SPLITS for row in splits[split]]
    names = [name or None for split in SPLITS for name in groups[split]]
    if not any(row.origin.group for row in rows) and {*groups["train"]} & {*groups["test"]}:
        names = [None] * len(rows)
    numbers = units_of([row.joined or row.key for row in rows], names, [row.document for row in rows])
    ends = np.cumsum([len(splits[split]) for split in SPLITS])
    return dict(zip(SPLITS, np.split(numbers, ends[:-1]), strict=True))


def _settle_overlap(splits: Rows, source: TaskSource, counts: dict[str, int], block: str) -> None:
    """Drop, count or refuse rows of train and dev that are also in a later split; modifies `splits` and `counts`."""
    keys = {split: [row.key for row in splits[split]] for split in SPLITS}
    later = {"train": {*keys["test"], *keys["dev"]}, "dev": {*keys["test"]}}
    twins = {split: [key in others for key in keys[split]] for split, others in later.items()}
    counts |= {f"{split}_rows_in_later_splits": sum(flags) for split, flags in twins.items()}
    total = sum(map(sum, twins.values()))
    if source.overlap == "refuse" and total:
        split = "train" if any(twins["train"]) else "dev"
        first = splits[split][twins[split].index(True)]
        raise DataError(
            f"{source.path}: {total} row(s) of train and dev are also in a later split, the first in {split} "
            f"({first.origin.position.unit} {first.origin.position.line}): {' | '.join(first.fields)[:60]!r}; remove "
            f"them, or set {block}.overlap to drop or report"
        )
    for split, flags in twins.items() if source.overlap == "drop" else ():
        splits[split] = [row for row, flag in zip(splits[split], flags, strict=True) if not flag]
        if flags and not splits[split]:
            raise DataError(
                f"{source.path}: no rows are left in {split} without those that are also in a later split; "
                f"the files seem to be copies of each other"
            )


def _repeated(splits: Rows) -> dict[str, int]:
    """Counts of rows that are not independent of others: copies within train, and groups of test in train."""
    of_test = {row.origin.group for row in splits["test"] if row.origin.group}
    result = {
        "train_rows_repeated": len(splits["train"]) - len({row.key for row in splits["train"]}),
        "train_rows_in_groups_of_test": sum(row.origin.group in of_test for row in splits["train"]),
    }
    return {name: count for name, count in result.items() if count}


def _groups(splits: Rows, source: TaskSource) -> dict[str, list[str | None]]:
    """The clusters of the rows of every split. With `group: auto` and no column of clusters, the slices are the
    clusters, unless test has fewer of them than the variance between clusters needs."""
    result = {split: [row.origin.group for row in rows] for split, rows in splits.items()}
    if source.group == AUTO and source.languages is None and not any(any(names) for names in result.values()):
        slices = {split: [row.origin.slice for row in rows] for split, rows in splits.items()}
        if len(set(slices["test"]) - {None}) >= MIN_GROUPS:
            return slices
    return result
