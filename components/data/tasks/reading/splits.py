"""Builds the splits of a task of any kind from validated rows: unique ids, dev split, overlap between splits."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from components.core.errors import DataError
from components.data.formats import textkey
from components.data.formats.tables import as_text
from components.data.scoring.intervals import MIN_GROUPS
from components.data.tasks.data import Examples, Fields, Labels, Split, units_of
from components.data.tasks.reading.records import Origin, Position, Record, filled_all, is_blank, read_all
from components.settings.tasks import AUTO, SPLITS, TaskSource


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


#: Share of train that becomes dev if there is no dev file and choices are made on dev.
DEV_SHARE = 0.1


class Rows(dict[str, list[Row]]):
    """Split -> the rows of a task, as a kind reads them; `dev` and `test` are missing if they have no files.

    Attributes:
        counts: of what is left out or changed.
        unlabelled: rows of train without a label.
    """

    def __init__(self, name: str, source: TaskSource) -> None:
        super().__init__()
        self.name, self.source, self.block = name, source, f"data.tasks.{name}"
        self.counts, self.unlabelled = Counter[str](), list[Row]()

    def add(self, split: str, *row: Any) -> None:
        """Add a row by its values (`Row`)."""
        self.setdefault(split, []).append(Row(*row))

    def records(self, columns: Sequence[str], **options: Any) -> Iterator[tuple[str, Record]]:
        """(split, row) of all files (`read_all`)."""
        return read_all(self.name, self.source, columns, self.counts, **options)

    def labelled(
        self, column: str, *, lacks: Callable[[Any], bool] = is_blank, **options: Any
    ) -> Iterator[tuple[str, Fields, Any, Origin]]:
        """(split, texts, label, origin) of all files. With `no_label: drop`, rows whose label `lacks` are counted, and
        those of train added to `unlabelled`.

        Args:
            column: of the label.

        Raises:
            DataError: a text is empty (file and line).
        """
        columns, dropped = self.source.texts, self.source.no_label == "drop"
        what = ("text",) if len(columns) == 1 else ("first text", "second text")
        for split, record in self.records([*columns, column], texts=len(columns), **options):
            *given, value = record.values
            if dropped and lacks(value):
                self.counts[f"{split}_rows_without_label"] += 1
                texts = [as_text(each, record.origin) or "" for each in given]
                if split == "train" and not any(map(is_blank, texts)):
                    self.unlabelled.append(Row(tuple(texts), None, record.origin))
            else:
                yield split, filled_all(record, columns, what), value, record.origin

    @property
    def files_of_train(self) -> str:
        return f"{self.source.path}/{' + '.join(self.source.files('train'))}"

    def unusable(self, column: str, what: str) -> DataError:
        """The error about files of train from which nothing can be learned; `column`: the key that names it."""
        return DataError(what, where=self.files_of_train, key=f"{self.block}.{column}", do="check {key}")

    def unseen(self, seen: Set[str], names: Callable[[Row], Iterable[str]]) -> set[str]:
        """The labels of dev and test that train lacks. Their rows are counted; every answer to them is wrong.

        Raises:
            DataError: at least half of the rows of a split have such labels, so train or the column is another one
                (file and line).
        """
        unseen: set[str] = set()
        train = " + ".join(self.source.files("train"))
        for split in ("dev", "test"):
            rows = self.get(split, [])
            lacking = [(row, labels) for row in rows if (labels := {*names(row)} - seen)]
            if lacking and 2 * len(lacking) >= len(rows):
                row, labels = lacking[0]
                raise DataError(
                    f"label {min(labels)!r} does not occur in {train}; correct it, or add examples of it to {train}",
                    where=row.origin,
                )
            if lacking:
                self.counts[f"{split}_rows_with_unseen_label"] = len(lacking)
                unseen.update(*(labels for _, labels in lacking))
        return unseen

    def examples(
        self, *, labels: list[str], target: Callable[[Row], Sequence[float]] | None = None, every_label: bool = False
    ) -> Examples:
        """The splits of the task, validated together.

        Args:
            target: row -> target as numbers; None: the numbers of its labels, without labels the number that it is.
            every_label: whether each label must remain in train (the target is then the index of a label).

        Raises:
            DataError: two rows of a split have the same id; no row of train or dev is left; a row is in two splits and
                `data.tasks.<name>.overlap` is `refuse`; a label has no rows in train once these are dropped; a key of
                `label_texts` is not a label.
        """
        source, block = self.source, self.block
        if unknown := sorted(source.label_texts.keys() - set(labels)):
            given = f"the labels are {', '.join(labels)}" if labels else f"a task of kind {source.kind} has none"
            raise DataError(f"{block}.label_texts: {unknown[0]!r} is not a label; {given}")
        self._refuse_twin_ids()
        groups = {row.origin.group for rows in self.values() for row in rows} - {None}
        number = {name: index for index, name in enumerate(labels)}
        numbers = target or (lambda row: [number[name] for name in row.target] if labels else (row.target,))
        label = (lambda row: int(numbers(row)[0])) if every_label else None
        if "test" not in self:
            self["train"], self["test"] = _apart(self["train"], source.test_share, f"{block}.test_share", kept=label)
            self.counts["test_rows_held_out"] = len(self["test"])
        if "dev" not in self and source.selection == "budget":
            # No choice is made on dev, and its labels would be missing in train.
            self["dev"] = []
        elif "dev" not in self:
            self["train"], self["dev"] = _apart(self["train"], DEV_SHARE, f"{block}.dev")
        self._settle_overlap()
        if label is not None and (missing := sorted(set(range(len(labels))) - set(map(label, self["train"])))):
            ways = ["add some"]
            ways += [] if source.files("dev") else [f"name a dev file ({block}.dev)"]
            ways += ["set {key} to report"] if source.overlap == "drop" else []
            raise DataError(
                f"no example of {labels[missing[0]]!r} is left once duplicates of dev and test are dropped",
                where=self.files_of_train,
                key=f"{block}.overlap",
                do=", or ".join(ways),
            )
        self._count_repeated()
        without = [row.fields for row in self.unlabelled if row.origin.group not in groups]
        return Examples(labels, **self._finished(numbers), counts=dict(self.counts), unlabelled=without)

    def _refuse_twin_ids(self) -> None:
        for rows in self.values():
            first: dict[str, Position] = {}
            for row in rows:
                position, ours = row.origin.position, row.origin.id
                if ours is not None and (there := first.setdefault(ours, position)) is not position:
                    named = [other.origin.id for other in rows if other.origin.id is not None]
                    where = f"{there.unit} {there.line}" if there.path == position.path else str(there)
                    raise DataError(
                        f"id {ours!r} is also on {where} ({len(named) - len(set(named))} row(s) repeat an id); "
                        "make the ids distinct, or name no id column",
                        where=position,
                    )

    def _settle_overlap(self) -> None:
        """Drop, count or refuse rows of train and dev that are also in a later split."""
        keys = {split: [row.key for row in self[split]] for split in SPLITS}
        later = {"train": {*keys["test"], *keys["dev"]}, "dev": {*keys["test"]}}
        twins = {split: [key in others for key in keys[split]] for split, others in later.items()}
        self.counts.update({f"{split}_rows_in_later_splits": sum(flags) for split, flags in twins.items()})
        overlap, path = self.source.overlap, self.source.path
        for split, flags in twins.items() if overlap != "report" else ():
            if overlap == "refuse" and any(flags):
                first = self[split][flags.index(True)]
                raise DataError(
                    f"{path}: {sum(map(sum, twins.values()))} row(s) of train and dev are also in a later split, the "
                    f"first in {split} ({first.origin.position.unit} {first.origin.position.line}): "
                    f"{' | '.join(first.fields)[:60]!r}; remove them, or set {self.block}.overlap to drop or report"
                )
            self[split] = [row for row, flag in zip(self[split], flags, strict=True) if not flag]
            if flags and not self[split]:
                raise DataError(
                    f"{path}: no rows are left in {split} without those that are also in a later split; "
                    f"the files seem to be copies of each other"
                )

    def _count_repeated(self) -> None:
        """Count rows that are not independent of others: copies within train, and groups of test in train."""
        train, of_test = self["train"], {row.origin.group for row in self["test"] if row.origin.group}
        repeated = len(train) - len({row.key for row in train})
        grouped = sum(row.origin.group in of_test for row in train)
        counts = {"train_rows_repeated": repeated, "train_rows_in_groups_of_test": grouped}
        self.counts.update({name: count for name, count in counts.items() if count})

    def _finished(self, target: Callable[[Row], Sequence[float]]) -> dict[str, Split]:
        """The splits with at most `dev_rows` and `test_rows` rows, their slices, groups and units."""
        source = self.source
        if isinstance(source.languages, dict):
            # Files without a column of slices: the slices of test are the languages of its files.
            origins = [replace(row.origin, slice=source.language_of(row.origin.position.path)) for row in self["test"]]
            self["test"] = [replace(row, origin=new) for row, new in zip(self["test"], origins, strict=True)]
        for split, most in (("dev", source.dev_rows), ("test", source.test_rows)):
            if most is not None and (unused := len(self[split]) - most) > 0:
                self.counts[f"{split}_rows_unused"] = unused
                chosen = np.random.default_rng(0).permutation(len(self[split]))[:most]
                self[split] = [self[split][row] for row in np.sort(chosen)]
        groups = self._groups()
        units = self._units(groups)
        return {
            split: Split(
                fields=[row.fields for row in self[split]],
                targets=[np.asarray(target(row), dtype=np.float64) for row in self[split]],
                slices=[row.origin.slice for row in self[split]],
                ids=[_id(row.origin) for row in self[split]],
                groups=groups[split],
                lines=[row.origin.position.line for row in self[split]],
                known_units=units[split],
            )
            for split in SPLITS
        }

    def _groups(self) -> dict[str, list[str | None]]:
        """The clusters of the rows of every split. With `group: auto` and no column of clusters, the slices are the
        clusters, unless test has fewer of them than the variance between clusters needs."""
        groups, slices = (
            {split: [getattr(row.origin, name) for row in rows] for split, rows in self.items()}
            for name in ("group", "slice")
        )
        automatic = self.source.group == AUTO and self.source.languages is None
        if automatic and not any(map(any, groups.values())) and len({*slices["test"]} - {None}) >= MIN_GROUPS:
            return slices
        return groups

    def _units(self, groups: Mapping[str, list[str | None]]) -> dict[str, Labels]:
        """The units of all rows, numbered together. Slices for `group: auto` in train and test are no units."""
        rows = [row for split in SPLITS for row in self[split]]
        names = [name or None for split in SPLITS for name in groups[split]]
        if not any(row.origin.group for row in rows) and {*groups["train"]} & {*groups["test"]}:
            names = [None] * len(rows)
        numbers = units_of([row.joined or row.key for row in rows], names, [row.document for row in rows])
        ends = np.cumsum([len(self[split]) for split in SPLITS])
        return dict(zip(SPLITS, np.split(numbers, ends[:-1]), strict=True))


def _id(origin: Origin) -> str:
    return origin.id if origin.id is not None else f"{Path(origin.position.path).name}:{origin.position.line}"


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
    return [row for row, name in zip(rows, names, strict=True) if name not in apart], [*compress(rows, flags)]


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
