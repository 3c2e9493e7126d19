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
from components.data.tasks.reading.records import Origin, Position, are_vectors, class_name, is_blank, labels_in
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
    text: str | Sequence[str] | None = None,
    label: Any = None,
    kind: str | None = None,
    language: str | None = None,
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
        near = nearest(str(kind), KINDS)
        raise InputError(f"kind: {kind!r} cannot be fitted from a table{near}; see `headstart init`")
    groups = _given("group", group, table)
    if isinstance(group, str):
        table = replace(table, columns={name: column for name, column in table.columns.items() if name != group})
    table, meant = _understood(table, text=text, label=label, kind=kind)
    io = find_kind(meant.kind).io
    columns = {name: meant.keys[name] for name in io.inputs}
    fields, notes = parsed(table, io, columns), [*table.read, *(meant.reasons if table.is_named else [])]
    if missing := [number for number, parts in enumerate(fields) if parts is None]:
        notes.append(f"{len(missing)} row(s) have no text and are left out, the first: {table.place(missing[0])}")
    if group is None and table.is_named and meant.group is not None:
        groups = _given("group", meant.group[0], table)
        notes.append(f"{meant.group[1]} (group= names another column; without the column, rows are independent)")
    filled = {number: parts for number, parts in enumerate(fields) if parts is not None}
    targets = meant.targets(table)
    labelled = [number for number in filled if targets[number] is not None]
    if len(labelled) < 2:
        raise InputError(f"{table.source}: {len(labelled)} labelled row(s); two or more are needed")
    with _errors(table, labelled):
        source, examples = _read(table, meant, labelled, groups)
    facts = Facts(meant.kind, examples, splits=("train",))
    return TaskRows(
        source,
        examples,
        columns if table.is_named else {},
        _classes(examples.labels, [targets[number] for number in labelled], many=source.several),
        [parts for number, parts in filled.items() if targets[number] is None],
        language or facts.language,
        notes + facts.lines(),
        [table.place(labelled[line - 1]) for line in examples.train.lines],
    )


def _understood(
    table: Table, *, text: str | Sequence[str] | None, label: Any, kind: str | None
) -> tuple[Table, Understanding]:
    """What a table is; and the table with labels that are given beside it as a column."""
    names = [*map(str, text)] if isinstance(text, list | tuple) else [str(text)] * (text is not None)
    if not table.is_named and label is None:
        raise InputError("label: is missing; give one label per text")
    for name in [*names, *([label] if isinstance(label, str) else [])]:
        table.column(name)
    if label is not None and not isinstance(label, str):
        kind = kind or ("multilabel" if getattr(label, "ndim", 1) == 2 else None)
        values = _given("label", label, table) or []
        table = with_names(table, _input_names(table, values, kind))
        label = next(name for name in ("label", "label given", "\0") if name not in table.columns)
        table = replace(table, columns={**table.columns, label: values})
    with _errors(table):
        meant = understand(table, text=names, label=label, kind=kind)
    if meant.kind not in get_args(Kind):
        raise InputError(
            f"{table.source}: {meant.keys.get('label', 'answers')!r} is the number, letter or text of one of several "
            "choices; such a task needs a project (`headstart init`, docs/tasks.md); kind= and label= say otherwise"
        )
    return table, meant


def _given(name: str, data: Any, table: Table) -> list[Any] | None:
    """One value per row of an argument: of a column of the table, or of other data; groups as text."""
    if data is None:
        return None
    if isinstance(data, str):
        values = table.column(data)
    elif getattr(data, "ndim", 1) == 2 and data.shape[1] > 1 and name == "label":
        values = list(indicator_labels(data)[0])
    else:
        values, *others = read_table(data).columns.values()
        if others:
            raise InputError(f"{name}: give the name of a column, or one {name} for each of the {len(table)} rows")
    if len(values) != len(table):
        raise InputError(f"{name}: {len(values)} {name}s for {len(table)} rows; give one {name} for each of them")
    return values if name == "label" else [None if is_blank(value) else str(value).strip() for value in values]


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
    columns = {name: table.columns[name] for name in names} | ({GROUP: groups} if groups else {})
    with tempfile.TemporaryDirectory(prefix="headstart-rows-") as folder:
        given = {"format": "jsonl", "dev": None, "budgets": ["all"], "selection": "budget", "overlap": "report"}
        source = TaskSource(**meant.keys | given | {"path": folder, "group": GROUP if groups else None})
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
    numbers = {class_name(value): value for each in lists for value in each if isinstance(value, int | float)}
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


def holds_pairs(data: Data, text: str | Sequence[str] | None) -> bool:
    """Whether the inputs of data are pairs of texts."""
    table = read_table(data)
    if table.is_named and text is None:
        with _errors(table):
            return len(text_columns(table)) == 2
    first = next((value for value in table.columns.get(INPUT, ()) if value is not None), "") if text is None else text
    return isinstance(first, list | tuple) and len(first) == 2


def indicator_labels(y: Any) -> tuple[list[list[Value]], list[Value]]:
    """(N, C) zeros and ones -> the labels of each row: names of a DataFrame's columns, or their numbers; and all."""
    names: list[Value] = [str(name) for name in y.columns] if isinstance(y, pd.DataFrame) else list(range(y.shape[1]))
    matrix = np.asarray(y)
    if not np.isin(matrix, (0, 1)).all():
        raise InputError("y: a matrix of labels holds 0 and 1 only")
    return [[names[column] for column in np.flatnonzero(row)] for row in matrix], names
