"""The task in a user's labelled data: a table that is understood and read as `headstart init` and a run do."""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import pandas as pd

from components.core.errors import DataError, nearest
from components.data.facts import Facts
from components.data.tasks.data import Examples, Fields
from components.data.tasks.kinds import find_kind
from components.data.tasks.reading.records import (
    Origin,
    Position,
    are_vectors,
    is_blank,
    label_text,
    labels_in,
)
from components.data.understanding import Understanding, text_columns, understand
from components.settings.tasks import KINDS, TaskSource
from headstart.tables import INPUT, Data, InputError, Table, parsed, read_table, with_names

#: Kinds of task that are fitted from a table.
Kind = Literal["classification", "multilabel", "regression", "pair", "similarity", "tagging"]
Value = str | int | float | bool
#: Column of the group in the rows that are read.
GROUP: Final = "group of the row"


@dataclass(frozen=True)
class TaskRows:
    """Labelled rows.

    Attributes:
        source: how they are read.
        examples: the rows as train.
        columns: input of the task -> column of the data; empty for a list of inputs.
        classes: name of a class -> its value in the data.
        unlabelled: inputs of the rows without a label.
        language: code.
        places: places of the rows in the data, for messages.
    """

    source: TaskSource
    examples: Examples
    columns: dict[str, str]
    classes: dict[str, Value]
    unlabelled: list[Fields]
    language: str
    notes: list[str]
    places: list[str]

    @property
    def kind(self) -> str:
        """Of the task."""
        return self.source.kind

    @property
    def fields(self) -> list[Fields]:
        """The inputs."""
        return self.examples.train.fields


def read_task(
    data: Data,
    *,
    text: str | Sequence[str] | None,
    label: Any,
    kind: str | None,
    language: str | None,
    group: Any = None,
) -> TaskRows:
    """The task in labelled data.

    Args:
        data: see `headstart.fit`.
        text: column, or two columns, of the text; None: found by name or by length.
        label: column of the label, or one label per row.
        kind: of the task; None: determined from the columns and the labels.
        language: code; None: guessed from the texts.
        group: column of the group, or one group per row; None: proposed as by `headstart init`.

    Raises:
        InputError: a column is missing or cannot be determined, a text is missing, there are fewer than two labelled
            rows or two classes (row and column, what to do).
    """
    table = read_table(data)
    if not len(table):
        raise InputError(f"{table.source}: holds no rows")
    kind = kind or table.kind
    if kind is not None and kind not in get_args(Kind):
        raise InputError(f"kind: {kind!r} cannot be fitted from a table{nearest(kind, KINDS)}; see `headstart init`")
    groups, table = _groups(table, group)
    names = [text] if isinstance(text, str) else list(text or ())
    if not table.is_named and label is None:
        raise InputError("label: is missing; give one label per text")
    table, column = _with_labels(table, names, label, kind)
    if getattr(label, "ndim", 1) == 2:
        kind = kind or "multilabel"
    with _errors(table):
        meant = understand(table, text=names, label=column, kind=kind)
    if meant.kind not in get_args(Kind):
        raise InputError(
            f"{table.source}: {meant.keys.get('label', 'answers')!r} is the number, letter or text of one of several "
            "choices; such a task needs a project (`headstart init`, docs/tasks.md); kind= and label= say otherwise"
        )
    io = find_kind(meant.kind).io
    columns = {name: meant.keys[name] for name in io.inputs}
    fields, notes = parsed(table, io, columns), [*table.read, *(meant.reasons if table.is_named else [])]
    if missing := [number for number, parts in enumerate(fields) if parts is None]:
        notes.append(f"{len(missing)} row(s) have no text and are left out, the first: {table.place(missing[0])}")
    if group is None and table.is_named and meant.group is not None:
        groups, _ = _groups(table, meant.group[0])
        notes.append(f"{meant.group[1]} (group= names another column; without the column, rows are independent)")
    filled = {number: parts for number, parts in enumerate(fields) if parts is not None}
    targets = meant.targets(table)
    labelled = [number for number in filled if targets[number] is not None]
    if len(labelled) < 2:
        raise InputError(f"{table.source}: {len(labelled)} labelled row(s); two or more are needed")
    with _errors(table, labelled):
        source, examples = _read(table, meant, labelled, groups)
    train, facts = examples.train, Facts(meant.kind, examples, splits=("train",))
    return TaskRows(
        source,
        examples,
        columns if table.is_named else {},
        _classes(examples.labels, [targets[number] for number in labelled], many=source.several),
        [parts for number, parts in filled.items() if targets[number] is None],
        language or facts.language,
        notes + facts.lines(),
        [table.place(labelled[line - 1]) for line in train.lines],
    )


def _with_labels(table: Table, names: Sequence[str], label: Any, kind: str | None) -> tuple[Table, str | None]:
    """The data with a list of labels as a further column, and the name of their column; None: it is to be found."""
    for name in [*names, *([label] if isinstance(label, str) else [])]:
        table.column(name)
    if label is None or isinstance(label, str):
        return table, label
    values, column = _given(label), next(name for name in ("label", "label given", "\0") if name not in table.columns)
    if len(values) != len(table):
        raise InputError(f"label: {len(values)} labels for {len(table)} rows; give one per row")
    named = with_names(table, _input_names(table, values, kind))
    return replace(named, columns={**named.columns, column: values}), column


def _given(label: Any) -> list[Any]:
    """One label per row, or a list of labels for (N, C) zeros and ones."""
    if getattr(label, "ndim", 1) == 2 and label.shape[1] > 1:
        return list(indicator_labels(label)[0])
    frame = read_table(label)
    if len(frame.columns) != 1:
        raise InputError("label: give the name of a column, or one label per row")
    return next(iter(frame.columns.values()))


def _input_names(table: Table, labels: Sequence[Any], kind: str | None) -> list[str]:
    """The inputs of a list: texts, pairs of texts, or lists of words."""
    first = next((value for values in table.columns.values() for value in values if value is not None), "")
    if kind is not None:
        return [*find_kind(kind).io.inputs]
    if table.is_named or not isinstance(first, list | tuple):
        return ["text"]
    if all(isinstance(value, list | tuple) for value in labels if not is_blank(value)):
        return ["words"]
    if len(first) == 2:
        return ["first", "second"]
    raise InputError(f"{table.place(0)}: holds a list; expected a text, a pair of texts, or words with their tags")


def _read(table: Table, meant: Understanding, numbers: Sequence[int], groups: Any) -> tuple[TaskSource, Examples]:
    """Some of the rows, read as those of a file."""
    keys = (*find_kind(meant.kind).io.inputs, "label", "score", "tags")
    names = [*(meant.keys[key] for key in keys if key in meant.keys), *meant.keys.get("labels", [])]
    columns = {name: table.columns[name] for name in names}
    columns |= {GROUP: groups} if groups else {}
    with tempfile.TemporaryDirectory(prefix="headstart-rows-") as folder:
        source = TaskSource(
            path=folder,
            format="jsonl",
            dev=None,
            budgets=["all"],
            selection="budget",
            overlap="report",
            group=GROUP if groups else None,
            **meant.keys,
        )
        lines = [
            json.dumps({name: values[number] for name, values in columns.items()}, default=_value) + "\n"
            for number in numbers
        ]
        # A task has a test split; nothing is chosen by it, and one row is the least.
        for name, of_split in ((source.train, lines), (source.test, lines[:1])):
            (Path(folder) / str(name)).write_text("".join(of_split), encoding="utf-8")
        return source, find_kind(meant.kind).read("task", source)


def _value(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    raise InputError(f"label: {value!r:.40} is {type(value).__name__}, expected text or a number; convert it")


def _classes(labels: Sequence[str], values: Sequence[Any], *, many: bool) -> dict[str, Value]:
    """Name of a class -> its value in the data; `many`: a row has several classes, as a list or a vector of 0 and 1."""
    vectors = many and are_vectors(values)
    lists = [[value] if vectors else labels_in(value) or [value] for value in values]
    numbers = {name_of(value): value for each in lists for value in each if isinstance(value, int | float)}
    return {name: numbers.get(name, name) for name in labels}


@contextmanager
def _errors(table: Table, numbers: Sequence[int] = ()) -> Iterator[None]:
    """Errors of rows as the user knows them. `numbers`: of the rows that are read."""
    try:
        yield
    except DataError as error:
        if isinstance(error, InputError):
            raise
        place, where = table.source, error.where.position if isinstance(error.where, Origin) else error.where
        if isinstance(where, Position):
            place = table.place(numbers[where.line - 1]) + f", column {where.column!r}" * bool(where.column)
        if error.key == "no_label":  # there is no such argument
            error.do = "remove the row or label it"
        raise InputError(error.said(_argument, where=place)) from error


def _argument(key: str) -> str:
    name = key.rpartition(".")[2]
    return f"{'label' if name in ('score', 'tags') else name}="


def read_unlabelled(data: Any, task: TaskRows) -> list[Fields]:
    """Inputs without labels: from data as of `fit`, or several of them in a list of paths; with the same columns.

    Raises:
        InputError: a column is missing, or a value is no text.
    """
    if isinstance(data, list | tuple) and data and all(map(_is_file, data)):
        return [fields for entry in data for fields in read_unlabelled(entry, task)]
    table, io = read_table(data), find_kind(task.kind).io
    columns: dict[str, str] = {}
    if table.is_named:
        with _errors(table):
            columns = dict(zip(io.inputs, text_columns(table, like=[*task.columns.values()]), strict=False))
        if len(columns) < len(io.inputs):
            raise InputError(f"unlabelled: has no columns {' and '.join(task.columns.values())}")
    return [fields for fields in parsed(table, io, columns) if fields is not None]


def _is_file(entry: Any) -> bool:
    return isinstance(entry, Path) or (isinstance(entry, str) and len(entry) < 1000 and os.path.isfile(entry))  # noqa: PTH113


def name_of(value: Value) -> str:
    """A label as text, as the readers of files write it."""
    return label_text(value) if isinstance(value, str) else json.dumps(value)


def _groups(table: Table, group: Any) -> tuple[list[str | None] | None, Table]:
    """One group per row, as text, and the table without their column, which is neither the text nor the label."""
    if group is None:
        return None, table
    if isinstance(group, str):
        values = table.column(group)
        table = replace(table, columns={name: column for name, column in table.columns.items() if name != group})
    else:
        frame = read_table(group)
        if len(frame.columns) != 1 or len(frame) != len(table):
            raise InputError(f"group: give the name of a column, or one group for each of the {len(table)} rows")
        values = next(iter(frame.columns.values()))
    return [None if is_blank(value) else str(value).strip() for value in values], table


def holds_pairs(data: Data, text: str | Sequence[str] | None) -> bool:
    """Whether the inputs of data are pairs of texts."""
    table = read_table(data)
    if table.is_named and text is None:
        with _errors(table):
            return len(text_columns(table)) == 2
    if table.is_named:
        return not isinstance(text, str) and len(text or ()) == 2
    first = next((value for value in table.columns[INPUT] if value is not None), "")
    return isinstance(first, list | tuple) and len(first) == 2


def indicator_labels(y: Any) -> tuple[list[list[Value]], list[Value]]:
    """(N, C) zeros and ones -> the labels of each row: names of a DataFrame's columns, or their numbers; and all."""
    names: list[Value] = [str(name) for name in y.columns] if isinstance(y, pd.DataFrame) else list(range(y.shape[1]))
    matrix = np.asarray(y)
    if not np.isin(matrix, (0, 1)).all():
        raise InputError("y: a matrix of labels holds 0 and 1 only")
    return [[names[column] for column in np.flatnonzero(row)] for row in matrix], names
