"""Request bodies as rows: MLflow's formats, each row checked separately."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.errors import DataError, nearest
from components.tasks.data import Fields
from components.tasks.task_io import TaskIO


@dataclass(frozen=True)
class Rows:
    """The rows of a request, in their order.

    Attributes:
        fields: N times the input's parts; None where the row is refused.
        problems: N times the reason of the refusal; empty for a valid row.
    """

    fields: Sequence[Fields | None]
    problems: Sequence[str]

    @property
    def valid(self) -> list[Fields]:
        """The inputs that are predicted."""
        return [fields for fields in self.fields if fields is not None]


def read_rows(body: bytes, io: TaskIO, *, characters: int) -> Rows:
    """The rows of a body in JSON.

    Formats: {"inputs": {column: [value, ...]}} or {"inputs": [row, ...]}, {"dataframe_records": [row, ...]},
    {"dataframe_split": {"columns": [...], "data": [[value, ...], ...]}}, where a row is {column: value}.

    Args:
        body: of the request.
        io: columns of the task.
        characters: maximum number of characters of a row.

    Raises:
        DataError: the body is not JSON, or not in one of these formats. Nothing is raised for a bad row.
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the body is not JSON: {error}") from error
    found = [_read(row, io, characters) for row in _records(content, io)]
    return Rows([fields for fields, _ in found], [problem for _, problem in found])


def _records(content: Any, io: TaskIO) -> list[Any]:
    if not isinstance(content, dict):
        raise DataError(f"the body is {_type(content)}, expected an object with the key inputs")
    known = ("inputs", "dataframe_records", "dataframe_split")
    keys = [key for key in known if key in content]
    if len(keys) != 1:
        raise DataError(f"the body needs one of the keys {', '.join(known)}; found {', '.join(content) or 'none'}")
    value = content[keys[0]]
    if keys[0] == "dataframe_split":
        return _of_split(value)
    if isinstance(value, list):
        return value
    if keys[0] == "inputs" and isinstance(value, dict):
        if unknown := sorted(set(value) - {*io.inputs, *io.context}):
            raise DataError(f"inputs: unknown column {unknown[0]!r}{nearest(unknown[0], [*io.inputs, *io.context])}")
        columns = {name: column if isinstance(column, list) else [column] for name, column in value.items()}
        if len({len(column) for column in columns.values()}) > 1:
            raise DataError("inputs: the columns have different numbers of values")
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    raise DataError(f"{keys[0]} is {_type(value)}, expected a list of rows")


def _of_split(value: Any) -> list[Any]:
    columns, data = (value.get("columns"), value.get("data")) if isinstance(value, dict) else (None, None)
    if not isinstance(columns, list) or not isinstance(data, list):
        raise DataError("dataframe_split needs the lists columns and data")
    return [
        dict(zip(columns, row, strict=True)) if isinstance(row, list) and len(row) == len(columns) else row
        for row in data
    ]


def _read(row: Any, io: TaskIO, characters: int) -> tuple[Fields | None, str]:
    """The parts of one row, or why it is refused."""
    if not isinstance(row, Mapping):
        return None, f"the row is {_type(row)}, expected an object with {', '.join(io.inputs)}"
    if missing := [name for name in io.inputs if row.get(name) is None]:
        return None, f"{missing[0]!r} is missing or null"
    for name in io.inputs:
        if isinstance(row[name], float) and math.isnan(row[name]):
            return None, f"{name!r} is NaN, expected text"
    try:
        fields = io.parse({name: row[name] for name in [*io.inputs, *io.context] if row.get(name) is not None})
    except ValueError as error:
        return None, str(error)
    if fields is None:
        return None, f"a part of the input is empty ({', '.join(io.inputs)})"
    if (length := sum(map(len, fields)) + sum(_size(row.get(name)) for name in io.context)) > characters:
        return None, f"{length} characters, more than the limit of {characters} (serve.row_characters)"
    return fields, ""


def _size(value: Any) -> int:
    """Characters of a text or of a list of texts."""
    return sum(map(len, value)) if isinstance(value, list) else len(value or "")


def _type(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
