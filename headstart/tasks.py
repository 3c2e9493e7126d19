"""The task in a user's labelled data: its kind, its columns and its rows, checked before anything is trained."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import pandas as pd

from components.cli.onboarding.inspection import facts_of, language_of
from components.core.errors import nearest
from components.data.guesses import (
    TAGS,
    WORDS,
    choice_of,
    columns_in_words,
    flags_of,
    group_column,
    in_words,
    kind_of,
    label_by_name,
    label_column,
    lists_in_words,
    separator_of,
    texts_of,
)
from components.data.tasks.data import Fields
from components.data.tasks.kinds import find_kind
from components.data.tasks.reading.records import (
    are_thousands,
    are_vectors,
    flag_of,
    is_no_number,
    label_text,
    labels_in,
    merged_numbers,
    number_of,
    positions_in,
    split_labels,
)
from headstart.tables import INPUT, Data, InputError, Table, parsed, read_table

#: Kind of task -> keys of a row of its jsonl file: the inputs, and the target.
COLUMNS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "classification": (("text",), "label"),
    "multilabel": (("text",), "label"),
    "regression": (("text",), "score"),
    "pair": (("first", "second"), "label"),
    "similarity": (("first", "second"), "score"),
    "tagging": (("words",), "tags"),
}
Value = str | int | float | bool
#: Key of the group in a row of a task's jsonl file.
GROUP: Final = "group"


@dataclass(frozen=True)
class TaskRows:
    """Labelled rows.

    Attributes:
        kind: of the task.
        fields: N inputs.
        targets: N values as in the task's jsonl file.
        columns: input of the task -> column of the data; empty for a list of inputs.
        classes: name of a class -> its value in the data.
        unlabelled: inputs of the rows without a label.
        language: code.
        groups: N names of the row's group, None for rows without one; None: the task has no groups.
        places: N places of the rows in the data, for messages.
    """

    kind: str
    fields: list[Fields]
    targets: list[Any]
    columns: dict[str, str]
    classes: dict[str, Value] = field(default_factory=dict)
    unlabelled: list[Fields] = field(default_factory=list)
    language: str = "en"
    groups: list[str | None] | None = None
    notes: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def records(self) -> list[dict[str, Any]]:
        """The rows of the task's jsonl file."""
        inputs, target = COLUMNS[self.kind]
        collected = []
        groups = self.groups or [None] * len(self.fields)
        for fields, value, group in zip(self.fields, self.targets, groups, strict=True):
            parts = {inputs[0]: list(fields)} if self.kind == "tagging" else dict(zip(inputs, fields, strict=True))
            collected.append({**parts, target: value, GROUP: group})
        return collected


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
    if kind is not None and kind not in COLUMNS:
        raise InputError(f"kind: {kind!r} cannot be fitted from a table{nearest(kind, COLUMNS)}; see `headstart init`")
    if table.kind == kind == "tagging" and text is None and label is None:
        # Words and tags of an annotation tool or a CoNLL file stand beside the columns of its records.
        text, label = "words", "tags"
    groups, table = _groups(table, group)
    if kind is None and label is None and text is None and (keys := choice_of(table.columns, None, None)) is not None:
        raise InputError(
            f"{table.source}: {keys['label']!r} is the number, letter or text of one of several choices; such a task "
            "needs a project (`headstart init`, docs/tasks.md); kind= and label= say otherwise"
        )
    names = [text] if isinstance(text, str) else list(text or ())
    labels, column, flags = _labels(table, label, names, kind)
    if len(labels) != len(table):
        raise InputError(f"label: {len(labels)} labels for {len(table)} rows; give one per row")
    names = names or (_texts(table, column) if table.is_named else [])
    kind = kind or ("multilabel" if flags else _kind(table, names, labels, column))
    columns = _columns(table, names, kind, label=column)
    inputs = parsed(table, find_kind(kind).io, columns)
    labelled, unlabelled = _inputs(inputs, labels, kind)
    if len(labelled) < 2:
        raise InputError(f"{table.source}: {len(labelled)} labelled row(s); two or more are needed")
    numbers, fields = list(labelled), list(labelled.values())
    target = {"labels": [*map(str, flags)]} if flags else {COLUMNS[kind][1]: column} if column else {}
    proposed = group_column(table.columns, columns | target) if group is None and table.is_named else None
    groups, table = (groups, table) if proposed is None else _groups(table, proposed[0])
    notes = _notes(table, columns | target, inputs, proposed)
    places = [table.place(number) + (f", column {column!r}" if column else "") for number in numbers]
    targets, classes = _targets(kind, _normal(labels, kind), numbers, places)
    _check(kind, fields, targets, classes, places)
    return TaskRows(
        kind,
        fields,
        targets,
        columns,
        classes,
        unlabelled,
        language or language_of([part for parts in fields for part in parts]),
        None if groups is None else [groups[number] for number in numbers],
        notes + _facts(kind, fields, targets, list(classes)),
        [table.place(number) for number in numbers],
    )


def _columns(table: Table, names: Sequence[str], kind: str, *, label: str | None) -> dict[str, str]:
    """Input of the task -> column of the table."""
    if label in names:
        raise InputError(f"text: {label!r} is the column of the label; name the column of the text")
    inputs, _ = COLUMNS[kind]
    if table.is_named and len(names) != len(inputs):
        raise InputError(f"text: a task of kind {kind} has {len(inputs)} column(s) of text, found {', '.join(names)}")
    return dict(zip(inputs, names, strict=True)) if table.is_named else {}


def _inputs(
    fields: Sequence[Fields | None], labels: Sequence[Any], kind: str
) -> tuple[dict[int, Fields], list[Fields]]:
    """Number of each labelled row -> its inputs, and the inputs of the rows without a label. Rows without text are left
    out. In `multilabel`, an empty text is no label out of several."""
    labelled: dict[int, Fields] = {}
    unlabelled: list[Fields] = []
    for number, (parts, value) in enumerate(zip(fields, labels, strict=True)):
        missing = value is None if kind == "multilabel" else _is_missing(value)
        if parts is not None and (missing or (kind in ("regression", "similarity") and is_no_number(value))):
            unlabelled.append(parts)
        elif parts is not None:
            labelled[number] = parts
    return labelled, unlabelled


def _notes(
    table: Table, keys: Mapping[str, Any], inputs: Sequence[Fields | None], group: tuple[str, str] | None
) -> list[str]:
    """How the data were read, and what was left out. `group`: as of `group_column`."""
    notes = list(table.notes)
    if table.is_named and {*keys.get("labels", ())} <= table.columns.keys():
        notes += columns_in_words(table.columns, keys)
    if missing := [number for number, parts in enumerate(inputs) if parts is None]:
        notes.append(f"{len(missing)} row(s) have no text and are left out, the first: {table.place(missing[0])}")
    if group is not None:
        notes.append(f"{group[1]} (group= names another column; without the column, rows are independent)")
    return notes


def _facts(kind: str, fields: Sequence[Fields], targets: Sequence[Any], classes: Sequence[str]) -> list[str]:
    """Sizes, classes, copies and conflicts, in words."""
    number = {name: index for index, name in enumerate(classes)}
    if classes:
        targets = [[number[name] for name in (value if isinstance(value, list) else [value])] for value in targets]
    else:
        targets = [[value] for value in targets]
    return facts_of(kind, fields, targets, classes).lines()


def read_unlabelled(data: Any, task: TaskRows) -> list[Fields]:
    """Inputs without labels: from data as of `fit`, or several of them in a list of paths; with the same columns.

    Raises:
        InputError: a column is missing, or a value is no text.
    """
    if isinstance(data, list | tuple) and data and all(map(_is_file, data)):
        return [fields for entry in data for fields in read_unlabelled(entry, task)]
    table, columns = read_table(data), task.columns
    inputs, _ = COLUMNS[task.kind]
    if table.is_named and not all(column in table.columns for column in columns.values()):
        columns = dict(zip(inputs, _texts(table, None), strict=False))
        if len(columns) < len(inputs):
            raise InputError(f"unlabelled: has no columns {' and '.join(task.columns.values())}")
    return [fields for fields in parsed(table, find_kind(task.kind).io, columns) if fields is not None]


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
    return [None if _is_missing(value) else str(value).strip() for value in values], table


def _labels(
    table: Table, label: Any, names: Sequence[str], kind: str | None
) -> tuple[list[Any], str | None, Sequence[Value]]:
    """One label per row, the column that they come from, and the names of several columns with one label each."""
    if isinstance(label, str):
        return table.column(label), label, ()
    if getattr(label, "ndim", 1) == 2 and label.shape[1] > 1:
        return (indicator := indicator_labels(label))[0], None, indicator[1]
    if label is not None:
        frame = read_table(label)
        if len(frame.columns) == 1:
            return next(iter(frame.columns.values())), None, ()
        raise InputError("label: give the name of a column, or one label per row")
    if not table.is_named:
        raise InputError("label: is missing; give one label per text")
    text = list(names) or _texts(table, label_by_name(table.columns))
    if len(text) == 1 and kind in (None, "multilabel") and (flags := flags_of(table.columns, text)):
        rows = range(len(table))
        return [[name for name in flags if flag_of(table.columns[name][row])] for row in rows], None, flags
    collected = label_column({name: values for name, values in table.columns.items() if name not in names}, text)
    if collected is None and (named := label_by_name(table.columns)) in names:
        raise InputError(f"text: {named!r} is the column of the label; name the column of the text")
    if collected is None:
        raise InputError(
            f"label: no column of {table.source} looks like a label; name it with label=; columns: "
            f"{in_words(table.columns)}"
            + (f"; {lists}" if (lists := lists_in_words(table.columns, table.loads)) else "")
        )
    return table.column(collected), collected, ()


def _texts(table: Table, label: str | None) -> list[str]:
    """The column, or two columns, of text, or the column of the words with tags.

    Raises:
        InputError: no column holds text.
    """
    words = [name for name in table.columns if name.lower() in WORDS and name != label][:1]
    tagged = any(name.lower() in TAGS for name in table.columns)
    if words and tagged and any(isinstance(value, list) for value in table.columns[words[0]]):
        return words
    if collected := texts_of(table.columns, label) or words:
        return collected
    raise InputError(f"text: no column of {table.source} holds text; columns: {in_words(table.columns)}")


def _kind(table: Table, names: Sequence[str], labels: Sequence[Any], label: str | None) -> str:
    """The kind of task by its inputs and labels."""
    values = table.column(names[0]) if table.is_named else table.columns[INPUT]
    given = [value for value in labels if not _is_missing(value)]
    first = next((value for value in values if value is not None), "")
    listed = isinstance(first, list | tuple)
    if listed and len(names) < 2 and all(isinstance(value, list | tuple) for value in given):
        return "tagging"
    two = len(names) == 2 or (listed and len(first) == 2)
    if listed and not two:
        raise InputError(f"{table.place(0)}: holds a list; expected a text, a pair of texts, or words with their tags")
    kind, _ = kind_of(given, two=two, label=label)
    if kind == "tagging" and not any(" " in value.strip() for value in given if isinstance(value, str)):
        raise InputError("label: is the tag of one word a row; give the words of a sentence and their tags as lists")
    return kind


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _normal(labels: Sequence[Any], kind: str) -> list[Any]:
    """Labels as lists, single labels or numbers without separators of thousands, by the kind of task."""
    if kind == "multilabel":
        return _separated(labels)
    if kind in ("classification", "pair"):
        return _single(labels)
    thousands = are_thousands(labels)
    return [value.replace(",", "") if thousands and isinstance(value, str) else value for value in labels]


def _single(labels: Sequence[Any]) -> list[Any]:
    """A list with one label as that label, and labels that are the same number as one."""
    single = [listed[0] if (listed := labels_in(value)) and len(listed) == 1 else value for value in labels]
    same = merged_numbers(label_text(value) for value in single if isinstance(value, str) and value.strip())
    return [same.get(label_text(value), value) if isinstance(value, str) else value for value in single]


def _separated(labels: Sequence[Any]) -> list[Any]:
    """Several labels in one text as a list; other values as they are."""
    listed = [labels_in(value) for value in labels]
    if are_vectors(labels):
        return list(map(positions_in, labels))
    separator = separator_of(labels) or ","
    return [
        several
        if several is not None
        else [part for part in split_labels(value.strip(), separator) if part]
        if isinstance(value, str)
        else value
        for value, several in zip(labels, listed, strict=True)
    ]


def _target(kind: str, value: Any, where: str, classes: dict[str, Value]) -> Any:
    """A label as in the task's jsonl file; adds its names to `classes`."""
    if kind in ("regression", "similarity"):
        try:
            number = number_of(value) if isinstance(value, str) else float(value)
        except (TypeError, ValueError) as error:
            raise InputError(f"{where}: {value!r:.40} is not a number; correct it or leave the row out") from error
        if not np.isfinite(number):
            raise InputError(f"{where}: {number} is not finite; correct it or leave the row out")
        return number
    if kind in ("multilabel", "tagging"):
        if isinstance(value, str):
            value = value.split()
        if not isinstance(value, list | tuple | set | frozenset):
            raise InputError(f"{where}: is {type(value).__name__} ({value!r:.40}), expected a list of labels")
        ordered = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
        return [_class(entry, where, classes) for entry in ordered]
    return _class(value, where, classes)


def _class(value: Any, where: str, classes: dict[str, Value]) -> str:
    if not isinstance(value, get_args(Value)):
        raise InputError(f"{where}: a label is {type(value).__name__} ({value!r:.40}), expected text or a number")
    name = name_of(value)
    if classes.setdefault(name, value) != value and not isinstance(value, str):
        raise InputError(f"{where}: {value!r} and {classes[name]!r} are the same label as text; use one type")
    return name


def _targets(
    kind: str, labels: Sequence[Any], numbers: Sequence[int], places: Sequence[str]
) -> tuple[list[Any], dict[str, Value]]:
    """The targets of these rows, and name of a class -> its value."""
    classes: dict[str, Value] = {}
    return [_target(kind, labels[row], place, classes) for row, place in zip(numbers, places, strict=True)], classes


def _check(
    kind: str, fields: Sequence[Fields], targets: Sequence[Any], classes: Mapping[str, Value], places: Sequence[str]
) -> None:
    if kind in ("classification", "pair") and len(classes) < 2:
        raise InputError(f"label: only one class ({next(iter(classes))!r}); a classifier needs two or more")
    if kind == "multilabel" and not classes:
        raise InputError("label: no row has a label")
    if kind == "tagging":
        for number, (words, tags) in enumerate(zip(fields, targets, strict=True)):
            if len(words) != len(tags):
                raise InputError(f"{places[number]}: {len(tags)} tags for {len(words)} words")
    if kind in ("classification", "pair") and len(fields) > 20:
        counts = Counter(targets)
        if len(counts) == len(fields):
            raise InputError(
                "label: every row has a class of its own; name the column of the labels, or kind='regression'"
            )


def holds_pairs(data: Data, text: str | Sequence[str] | None) -> bool:
    """Whether the inputs of data are pairs of texts."""
    table = read_table(data)
    if table.is_named:
        return len(_texts(table, None) if text is None else [text] if isinstance(text, str) else text) == 2
    first = next((value for value in table.columns[INPUT] if value is not None), "")
    return isinstance(first, list | tuple) and len(first) == 2


def indicator_labels(y: Any) -> tuple[list[list[Value]], list[Value]]:
    """(N, C) zeros and ones -> the labels of each row: names of a DataFrame's columns, or their numbers; and all."""
    names: list[Value] = [str(name) for name in y.columns] if isinstance(y, pd.DataFrame) else list(range(y.shape[1]))
    matrix = np.asarray(y)
    if not np.isin(matrix, (0, 1)).all():
        raise InputError("y: a matrix of labels holds 0 and 1 only")
    return [[names[column] for column in np.flatnonzero(row)] for row in matrix], names
