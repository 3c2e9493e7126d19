"""Labelled rows of a task: inputs, targets, answers and splits."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import zip_longest
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.data.formats.textkey import digest_of
from components.settings.tasks import has

#: Largest share of the rows that copies may join in one unit where rows have groups or documents.
MOST_JOINED: Final = 0.5


def units_of(
    keys: Sequence[Hashable], groups: Sequence[Hashable | None], documents: Sequence[Hashable | None] = ()
) -> NDArray[np.int64]:
    """The unit of each row: rows with the same key, group or document are in one unit, directly or through other rows.

    Where this would join most of the rows (a sentence such as "Yes." that is in every document), rows are joined by
    group and document only, and copies may lie in several units. `groups`, `documents`: N names; None: the row has
    none; empty: no row has one. Returns (N,) numbers from 0, in the order of the first row.
    """
    joined = _linked(keys, groups, documents)
    if not len(joined) or np.bincount(joined).max() <= MOST_JOINED * len(joined):
        return joined
    alone = [
        key if group is None and document is None else None
        for key, group, document in zip_longest(keys, groups, documents)
    ]
    return _linked(alone, groups, documents)


def _linked(*columns: Sequence[Hashable | None]) -> NDArray[np.int64]:
    """Rows that share a value of a column, directly or through other rows, have the same number; None is no value."""
    #: Row -> an earlier row that it is linked with, or itself; value of a column -> its first row.
    earlier, first = list(range(len(columns[0]))), dict[tuple[int, Hashable], int]()

    def first_linked(row: int) -> int:
        while earlier[row] != row:
            earlier[row] = row = earlier[earlier[row]]
        return row

    for number, column in enumerate(columns):
        for row, value in enumerate(column):
            if value is not None:
                least, most = sorted(map(first_linked, (row, first.setdefault((number, value), row))))
                earlier[most] = least
    return np.unique(list(map(first_linked, earlier)), return_inverse=True)[1].astype(np.int64)


#: The parts of one input: (text,), (first, second), the words of a sentence, (question, context), (prompt, choice ...).
Fields = tuple[str, ...]
#: The target of a row, by kind:
#:   classification  [index of the label], or [-1] for a text that belongs to no class
#:   pair, choice    [index of the label], [index of the correct choice]
#:   multilabel      indices of the row's labels, ascending
#:   similarity, regression  [value]
#:   tagging         one tag index per word
#:   questions       [start, end, ...] of every reference answer, as character offsets in the context, end exclusive;
#:                   empty if the question is unanswerable
Target = NDArray[np.float64]
#: The prediction for a row, by kind:
#:   classification, pair, choice  probabilities of the labels (choices), with sum 1
#:   multilabel                    one independent probability per label
#:   similarity, regression        [value]
#:   tagging                       one tag index per word
#:   questions                     [start, end, score of the span, score of no answer]; start == end: no answer
Answer = NDArray[np.float32]
Labels = NDArray[np.int64]


def row_texts(kind: str, fields: Fields) -> list[str]:
    """The texts of a row; the words of a sentence are one."""
    return [" ".join(fields)] if has(kind, "words") else list(fields)


def spaced(count: int, most: int) -> Labels:
    """At most `most` indices of `count` rows, evenly spaced."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def one_hot(targets: Sequence[NDArray[np.floating[Any]]], *, labels: int) -> NDArray[np.float64]:
    """N vectors of label indices -> (N, C) of 0 and 1."""
    result = np.zeros((len(targets), labels))
    for row, target in enumerate(targets):
        result[row, target.astype(np.int64)] = 1
    return result


def mean_answers(members: Sequence[Sequence[NDArray[Any]]]) -> list[Answer]:
    """The mean of several models' answers to each of N rows, for kinds whose answers are probabilities or numbers."""
    return [np.stack(row).mean(0, dtype=np.float64).astype(np.float32) for row in zip(*members, strict=True)]


@dataclass(frozen=True)
class Split:
    """Labelled rows, in order.

    Attributes:
        slices: N names of the row's slice; None for rows without one.
        groups: N names of the cluster of a row (service, customer, author): rows of one cluster are not independent.
            None: the row is a cluster of its own. Empty in the output of versions without clusters.
        ids: N ids of the rows in their source; may be empty.
        lines: N line numbers in the source, from 1, for messages; empty after reading from an output directory.
        known_units: (N,) as `units`; None: they follow from the texts and groups.
    """

    fields: list[Fields]
    targets: list[Target]
    slices: list[str | None]
    ids: list[str] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    known_units: Labels | None = None

    def __len__(self) -> int:
        return len(self.fields)

    @cached_property
    def labels(self) -> Labels:
        """(N,) label indices, for kinds whose targets are one number."""
        return np.fromiter((target[0] for target in self.targets), dtype=np.int64, count=len(self))

    @property
    def clusters(self) -> Labels | None:
        """(N,) number of each row's cluster, from 0: copies, the rows of a group and those of a document are in one;
        None if rows are independent."""
        # The groups of `group: auto` are no units if train has them too.
        numbers = units_of(self.units.tolist(), self.groups)
        return None if len(np.unique(numbers)) == len(self) else numbers

    @property
    def texts(self) -> list[str]:
        return [parts[0] for parts in self.fields]

    @cached_property
    def units(self) -> Labels:
        """(N,) number of the row's unit (`units_of`)."""
        if self.known_units is not None:
            return self.known_units
        return units_of(self.digests, self.groups)

    @cached_property
    def digests(self) -> list[bytes]:
        """N digests of the inputs, equal for copies."""
        return [digest_of(parts) for parts in self.fields]

    def belonging(self, rows: NDArray[np.integer]) -> frozenset[bytes]:
        """Digests of everything that belongs to some of the rows: the inputs of their units. Who is scored on these
        rows has not read an input with such a digest, with or without its label."""
        inside = np.isin(self.units, self.units[rows])
        return frozenset(self.digests[row] for row in np.flatnonzero(inside))

    def take(self, rows: Sequence[int] | NDArray[np.integer]) -> Split:
        """The rows with these indices, in this order."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        units = columns.pop("known_units")
        taken = {name: [column[row] for row in rows] if column else [] for name, column in columns.items()}
        return Split(**taken, known_units=units if units is None else units[np.asarray(rows, dtype=np.int64)])


@dataclass(frozen=True)
class Examples:
    """The validated data of a task.

    Attributes:
        labels: sorted names of the labels; a label's index refers to this list. Empty for kinds without labels.
        counts: number of rows that were dropped or reported, by reason.
        unlabelled: inputs of rows of train without a label. Rows in a group with labelled rows are left out.
    """

    labels: list[str]
    train: Split
    dev: Split
    test: Split
    counts: dict[str, int] = field(default_factory=dict)
    unlabelled: Sequence[Fields] = ()
