"""The task in a user's labelled data: its kind, its columns and its rows, checked before anything is trained."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args

import numpy as np
import pandas as pd

from components.errors import nearest
from components.tasks.data import Fields
from components.tasks.kinds import find_kind
from components.words.systems import UNSPACED
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
#: Names by which columns are recognised, the first found.
TEXTS: Final = ("text", "texts", "sentence", "review", "content", "body", "message", "document", "question", "title")
PAIRS: Final = (("first", "second"), ("sentence1", "sentence2"), ("premise", "hypothesis"), ("text1", "text2"))
LABELS: Final = ("label", "labels", "class", "category", "target", "intent", "sentiment", "tags", "score", "y")
#: First and last code point of the scripts of languages without spaces.
SCRIPTS: Final = {
    "th": (0x0E00, 0x0E7F),
    "lo": (0x0E80, 0x0EFF),
    "my": (0x1000, 0x109F),
    "km": (0x1780, 0x17FF),
    "ja": (0x3040, 0x30FF),
    "zh": (0x4E00, 0x9FFF),
}
#: Share of the letters from which a text is in such a script.
SHARE: Final = 0.3
Value = str | int | float | bool


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
        language: code, for languages without spaces; else `en`.
    """

    kind: str
    fields: list[Fields]
    targets: list[Any]
    columns: dict[str, str]
    classes: dict[str, Value] = field(default_factory=dict)
    unlabelled: list[Fields] = field(default_factory=list)
    language: str = "en"

    def records(self) -> list[dict[str, Any]]:
        """The rows of the task's jsonl file."""
        inputs, target = COLUMNS[self.kind]
        found = []
        for fields, value in zip(self.fields, self.targets, strict=True):
            parts = {inputs[0]: list(fields)} if self.kind == "tagging" else dict(zip(inputs, fields, strict=True))
            found.append({**parts, target: value})
        return found


def read_task(
    data: Data,
    *,
    text: str | Sequence[str] | None,
    label: Any,
    kind: str | None,
    language: str | None,
) -> TaskRows:
    """The task in labelled data.

    Args:
        data: see `headstart.fit`.
        text: column, or two columns, of the text; None: found by name or by length.
        label: column of the label, or one label per row.
        kind: of the task; None: determined from the columns and the labels.
        language: code; None: determined from the script.

    Raises:
        InputError: a column is missing or cannot be determined, a text is missing, there are fewer than two labelled
            rows or two classes (row and column, what to do).
    """
    table = read_table(data)
    if not len(table):
        raise InputError(f"{table.source}: holds no rows")
    names = [text] if isinstance(text, str) else list(text or ())
    labels, column = _labels(table, label, names)
    if len(labels) != len(table):
        raise InputError(f"label: {len(labels)} labels for {len(table)} rows; give one per row")
    if table.is_named and not names:
        names = _texts(table, column)
    kind = kind or _kind(table, names, labels)
    if kind not in COLUMNS:
        raise InputError(f"kind: {kind!r} cannot be fitted from a table{nearest(kind, COLUMNS)}")
    inputs, _ = COLUMNS[kind]
    if table.is_named and len(names) != len(inputs):
        raise InputError(f"text: a task of kind {kind} has {len(inputs)} column(s) of text, found {', '.join(names)}")
    columns = dict(zip(inputs, names, strict=True)) if table.is_named else {}
    fields = parsed(table, find_kind(kind).io, columns)
    where = f", column {column!r}" if column else ""
    known: list[tuple[int, Fields]] = []
    free: list[Fields] = []
    for number, (found, value) in enumerate(zip(fields, labels, strict=True)):
        if found is None:
            missing = f", column {names[0]!r}" if table.is_named else ""
            raise InputError(f"{table.place(number)}{missing}: the text is missing; remove the row or fill it in")
        if _is_missing(value):
            free.append(found)
        else:
            known.append((number, found))
    if len(known) < 2:
        raise InputError(f"{table.source}: {len(known)} labelled row(s); two or more are needed")
    classes: dict[str, Value] = {}
    targets = [_target(kind, labels[number], table.place(number) + where, classes) for number, _ in known]
    _check(kind, [fields for _, fields in known], targets, classes, lambda row: table.place(known[row][0]) + where)
    return TaskRows(
        kind,
        [fields for _, fields in known],
        targets,
        columns,
        classes,
        free,
        language or language_of([part for _, parts in known for part in parts]),
    )


def read_unlabelled(data: Any, task: TaskRows) -> list[Fields]:
    """Inputs without labels: from data as of `fit`, or several of them in a list of paths; with the same columns.

    Raises:
        InputError: a column is missing, or a value is no text.
    """
    from pathlib import Path

    if isinstance(data, list | tuple) and data and all(isinstance(one, Path) for one in data):
        return [fields for one in data for fields in read_unlabelled(one, task)]
    table, columns = read_table(data), task.columns
    inputs, _ = COLUMNS[task.kind]
    if table.is_named and not all(column in table.columns for column in columns.values()):
        columns = dict(zip(inputs, _texts(table, None), strict=False))
        if len(columns) < len(inputs):
            raise InputError(f"unlabelled: has no columns {' and '.join(task.columns.values())}")
    return [fields for fields in parsed(table, find_kind(task.kind).io, columns) if fields is not None]


def language_of(texts: Sequence[str]) -> str:
    """The language of texts in a script without spaces between words, else `en`; Han with kana is Japanese."""
    sample = "".join(texts[:: max(1, len(texts) // 200)])[:20_000]
    letters = [ord(character) for character in sample if character.isalpha() or "\u0e00" <= character <= "\u0e7f"]
    shares = {
        code: sum(first <= letter <= last for letter in letters) / max(1, len(letters))
        for code, (first, last) in SCRIPTS.items()
    }
    if shares["ja"] > 0.05 and shares["ja"] + shares["zh"] > SHARE:
        return "ja"
    best = max(shares, key=shares.__getitem__)
    assert best in UNSPACED
    return best if shares[best] > SHARE else "en"


def name_of(value: Value) -> str:
    """A label as text, as the readers of files write it."""
    return value.strip() if isinstance(value, str) else json.dumps(value)


def _labels(table: Table, label: Any, names: Sequence[str]) -> tuple[list[Any], str | None]:
    """One label per row, and the column that they come from."""
    if isinstance(label, str):
        return table.column(label), label
    if label is not None:
        frame = read_table(label)
        if len(frame.columns) == 1:
            return next(iter(frame.columns.values())), None
        raise InputError("label: give the name of a column, or one label per row")
    if not table.is_named:
        raise InputError("label: is missing; give one label per text")
    lowered = {name.lower(): name for name in table.columns if name not in names}
    found = next((lowered[name] for name in LABELS if name in lowered), None)
    if found is None and len(table.columns) == 2:
        text = names or _texts(table, None)
        found = next(name for name in table.columns if name not in text)
    if found is None:
        raise InputError(
            f"label: which column holds the labels? Name it, as in label={list(table.columns)[-1]!r}; columns: "
            f"{', '.join(table.columns)}"
        )
    return table.column(found), found


def _texts(table: Table, label: str | None) -> list[str]:
    """The column, or two columns, of text: by name, or the one with the longest text."""
    lowered = {name.lower(): name for name in table.columns if name != label}
    for pair in PAIRS:
        if all(name in lowered for name in pair):
            return [lowered[name] for name in pair]
    if found := next((lowered[name] for name in TEXTS if name in lowered), None):
        return [found]
    if "words" in lowered:
        return [lowered["words"]]
    lengths = {
        name: sum(len(value) for value in values if isinstance(value, str)) / len(values)
        for name, values in table.columns.items()
        if name != label and any(isinstance(value, str) for value in values)
    }
    if not lengths:
        raise InputError(f"text: no column of {table.source} holds text; columns: {', '.join(table.columns)}")
    return [max(lengths, key=lengths.__getitem__)]


def _kind(table: Table, names: Sequence[str], labels: Sequence[Any]) -> str:
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
    if any(isinstance(value, list | tuple | set | frozenset) for value in given):
        return "multilabel"
    if _is_measured(given):
        return "similarity" if two else "regression"
    return "pair" if two else "classification"


def _is_measured(values: Sequence[Any]) -> bool:
    """Whether labels are measurements: numbers, some of which are not whole."""
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        return False
    return any(not number.is_integer() for number in numbers)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _target(kind: str, value: Any, where: str, classes: dict[str, Value]) -> Any:
    """A label as in the task's jsonl file; adds its names to `classes`."""
    if kind in ("regression", "similarity"):
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise InputError(f"{where}: {value!r:.40} is not a number; correct it or leave the row out") from error
        if not np.isfinite(number):
            raise InputError(f"{where}: {number} is not finite; correct it or leave the row out")
        return number
    if kind in ("multilabel", "tagging"):
        if isinstance(value, str):
            value = value.split() if kind == "tagging" else [part for part in value.split(",") if part.strip()]
        if not isinstance(value, list | tuple | set | frozenset):
            raise InputError(f"{where}: is {type(value).__name__} ({value!r:.40}), expected a list of labels")
        ordered = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
        return [_class(one, where, classes) for one in ordered]
    return _class(value, where, classes)


def _class(value: Any, where: str, classes: dict[str, Value]) -> str:
    if not isinstance(value, get_args(Value)):
        raise InputError(f"{where}: a label is {type(value).__name__} ({value!r:.40}), expected text or a number")
    name = name_of(value)
    if classes.setdefault(name, value) != value and not isinstance(value, str):
        raise InputError(f"{where}: {value!r} and {classes[name]!r} are the same label as text; use one type")
    return name


def _check(
    kind: str, fields: Sequence[Fields], targets: Sequence[Any], classes: Mapping[str, Value], place: Any
) -> None:
    if kind in ("classification", "pair") and len(classes) < 2:
        raise InputError(f"label: only one class ({next(iter(classes))!r}); a classifier needs two or more")
    if kind == "multilabel" and not classes:
        raise InputError("label: no row has a label")
    if kind == "tagging":
        for number, (words, tags) in enumerate(zip(fields, targets, strict=True)):
            if len(words) != len(tags):
                raise InputError(f"{place(number)}: {len(tags)} tags for {len(words)} words")
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
