"""Request bodies as rows, each checked separately: MLflow's forms, and plain JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from components.core.errors import DataError
from components.data.tasks.data import Fields
from components.data.tasks.task_io import TaskIO

#: Keys of a body that may hold its rows.
KEYS: Final = ("inputs", "instances", "dataframe_records", "dataframe_split")
#: JSON can express halves of surrogate pairs alone; UTF-8, tokenizers and answers cannot.
SURROGATE: Final = re.compile("[\ud800-\udfff]")


class TooManyRowsError(DataError):
    """A request has more rows than one request may have."""


@dataclass(frozen=True)
class _Refused:
    """A row that is refused before it is read."""

    reason: str


@dataclass(frozen=True)
class Rows:
    """The rows of a request, in their order. `fields`: N times the input's parts; None where the row is refused.
    `problems`: N times the reason of the refusal; empty for a valid row."""

    fields: Sequence[Fields | None]
    problems: Sequence[str]

    @property
    def valid(self) -> list[Fields]:
        """The inputs that are predicted."""
        return [fields for fields in self.fields if fields is not None]


def read_rows(body: bytes, io: TaskIO, *, characters: int, most: int) -> Rows:
    """The rows of a body in JSON, by the same rules in each form.

    A body is the value of one of the keys `inputs`, `instances`, `dataframe_records` and `dataframe_split`, or such a
    value by itself. A value is a list of rows, an object of columns {column: [value, ...]}, an object of values
    {column: value}, which is one row, or a table {"columns": [...], "data": [[value, ...], ...]}. A row is an object
    {column: value}, or the value itself if the task has one input. Columns that the task does not have are ignored.

    Raises DataError: the body is not JSON, or not in one of these forms. Nothing is raised for a bad row. Raises
    TooManyRowsError: it has more rows.
    """
    try:
        content = orjson.loads(body)
    except ValueError:
        content = _lenient(body)
    keys = [key for key in KEYS if key in content] if isinstance(content, dict) else []
    if len(keys) > 1:
        raise DataError(f"the body has several of the keys {', '.join(KEYS)}: {', '.join(keys)}; send one")
    where = keys[0] if keys else "the body"
    rows = _rows(content[where] if keys else content, io, where, most)
    if not rows:
        raise DataError(f"{where}: no rows; send at least one")
    read = [_read(row, io, characters) for row in rows]
    return Rows([fields for fields, _ in read], [problem for _, problem in read])


def _lenient(body: bytes) -> Any:
    """A body with what orjson refuses, such as NaN and halves of surrogate pairs: then only its row is refused."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the body is not JSON: {error}") from error


def _rows(value: Any, io: TaskIO, where: str, most: int) -> list[Any]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | dict):
        raise DataError(f"{where}: {_type(value)}, expected a list of rows or an object of columns")
    if isinstance(value, list):
        _check_number(len(value), where, most)
        return value
    if "columns" in value and "data" in value:
        return _of_table(value["columns"], value["data"], where, most)
    columns = {name: column if isinstance(column, list) else [column] for name, column in value.items()}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"{where}: the columns have different numbers of values; give each one value per row")
    _check_number(max(lengths, default=0), where, most)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _of_table(columns: Any, data: Any, where: str, most: int) -> list[Any]:
    if not isinstance(columns, list) or not isinstance(data, list):
        raise DataError(f"{where}: columns and data have to be lists")
    if wrong := [name for name in columns if not isinstance(name, str)]:
        raise DataError(f"{where}: a name of a column is {_type(wrong[0])}, expected text")
    if len(set(columns)) < len(columns):
        raise DataError(f"{where}: two columns have the same name; give each its own")
    _check_number(len(data), where, most)
    return [
        dict(zip(columns, row, strict=True))
        if isinstance(row, list) and len(row) == len(columns)
        else _Refused(f"the row is {_type(row)}, expected a list of {len(columns)} values")
        for row in data
    ]


def _check_number(rows: int, where: str, most: int) -> None:
    if rows > most:
        raise TooManyRowsError(f"{where}: {rows:,} rows, more than {most:,}; send fewer at once")


def _read(row: Any, io: TaskIO, characters: int) -> tuple[Fields | None, str]:
    if isinstance(row, _Refused):
        return None, row.reason
    if not isinstance(row, dict) and len(io.inputs) == 1 and isinstance(row, str | list):
        row = dict.fromkeys(io.inputs, row)
    if not isinstance(row, dict):
        return None, f"the row is {_type(row)}, expected an object with {', '.join(io.inputs)}"
    if missing := [name for name in io.inputs if row.get(name) is None]:
        others = ", ".join(repr(name[:50]) for name in [name for name in row if name not in io.inputs][:5])
        return None, f"{missing[0]!r} is missing or null" + (f"; the row has {others}" if others else "")
    for name in io.inputs:
        if isinstance(row[name], float) and math.isnan(row[name]):
            return None, f"{name!r} is NaN, expected text"
    try:
        fields = io.parse({name: row[name] for name in io.inputs})
    except ValueError as error:
        return None, str(error)
    if fields is None:
        return None, f"a part of the input is empty ({', '.join(io.inputs)})"
    if (length := sum(map(len, fields))) > characters:
        return None, f"{length} characters, more than the limit of {characters}"
    if any(SURROGATE.search(part) for part in fields):
        return None, "the text contains half of a surrogate pair, which is no character"
    return fields, ""


def _type(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
