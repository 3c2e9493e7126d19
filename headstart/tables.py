"""What a user passes as data, as rows with a place for messages.

Data are a DataFrame, a Series, the path of a file or folder of any format of `components.data.formats.rows` (or lines
of a .txt), a list of dicts, or a list or array of inputs: texts, pairs of texts, or lists of words.
"""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from components.cli.onboarding.splits import split_files
from components.core.errors import DataError, nearest
from components.data.formats.dialect import USUAL
from components.data.formats.kinds import form_of
from components.data.formats.layouts import rows_of
from components.data.formats.lines import Reading, lines
from components.data.formats.rows import open_rows
from components.data.formats.tables import are_too_many
from components.data.sampling import NAMELESS, reading_in_words
from components.data.tasks.data import Fields
from components.data.tasks.task_io import TaskIO
from components.learners.prediction import LONGEST

#: Name of the column of a list of inputs.
INPUT = "input"
Data = Any


class InputError(DataError, ValueError):
    """An argument or a value of the data is wrong; a ValueError too, as in scikit-learn."""


@dataclass(frozen=True)
class Table:
    """Rows and their places.

    Attributes:
        columns: name -> one value per row; a missing value is None.
        place: number of a row -> its place, for messages.
        index: of a DataFrame or Series; None for other data.
        source: what the data are, for messages.
        notes: what was left out of a file, and how it was read.
        kind: of the task, where the format says it.
        ambiguous: names that several columns of a file have.
        loads: an expression of Python for the rows of JSON.
    """

    columns: Mapping[str, list[Any]]
    place: Callable[[int], str]
    index: pd.Index | None = None
    source: str = "the data"
    notes: Sequence[str] = ()
    kind: str | None = None
    ambiguous: frozenset[str] = frozenset()
    loads: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    @property
    def is_named(self) -> bool:
        """Whether the columns have names that the user has given."""
        return list(self.columns) != [INPUT]

    def column(self, name: str) -> list[Any]:
        """The values of a column.

        Raises:
            InputError: there is none.
        """
        if name not in self.columns:
            raise InputError(f"{self.source}: has no column {name!r}{nearest(name, self.columns)}")
        if name in self.ambiguous:
            raise InputError(f"{self.source}: has two columns {name!r}; rename one of them")
        return self.columns[name]


def read_table(data: Data) -> Table:
    """The rows of any data.

    Raises:
        InputError: the data have another form.
        DataError: a file is missing or damaged (file and line).
    """
    if not isinstance(data, pd.DataFrame | pd.Series | np.ndarray) and (columns := _of_arrow(data)) is not None:
        return Table(columns, _row, source=f"the {type(data).__name__}")
    if isinstance(data, pd.DataFrame):
        names = [str(name) for name in data.columns]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"the DataFrame has two columns {twice!r}; rename one")
        columns = {name: _values(data.iloc[:, number].tolist()) for number, name in enumerate(names)}
        return Table(columns, _place(data.index), data.index, "the DataFrame")
    if isinstance(data, pd.Series):
        return Table({INPUT: _values(data.tolist())}, _place(data.index), data.index, "the Series")
    if isinstance(data, str | Path):
        return _read_file(Path(data))
    if isinstance(data, np.ndarray):
        return Table({INPUT: _values(_of_array(data))}, _row, source="the array")
    if isinstance(data, Mapping | Sequence) and not isinstance(data, bytes):
        rows, _, said = rows_of(dict(data) if isinstance(data, Mapping) else list(data))
        if isinstance(rows, Mapping):
            return read_table(pd.DataFrame(rows))
        notes = [f"layout: {said}"] if said else []
        if rows and all(isinstance(row, Mapping) for row in rows):
            names = list(dict.fromkeys(name for row in rows for name in row))
            columns = {name: _values([row.get(name) for row in rows]) for name in names}
            return Table(columns, _row, source="the list", notes=notes)
        return Table({INPUT: _values(rows)}, _row, source="the list", notes=notes)
    if isinstance(data, Iterator | Generator):
        return read_table(list(data))
    raise InputError(
        f"data: {type(data).__name__} is not supported; give a DataFrame, the path of a csv, tsv, jsonl or parquet "
        "file, a list of dicts, or a list of texts"
    )


def parsed(table: Table, task_io: TaskIO, columns: Mapping[str, str]) -> list[Fields | None]:
    """The inputs of a task in the rows; None: a part of the input is missing.

    Args:
        table: the rows.
        task_io: of the kind of task.
        columns: input of the task -> column of the table, for tables with names.

    Raises:
        InputError: a column is missing, or a value has the wrong type (row and column).
    """
    collected: list[Fields | None] = []
    single = len(task_io.inputs) == 1
    sources = {name: table.column(columns[name]) for name in task_io.inputs} if table.is_named else {}
    for number in range(len(table)):
        if table.is_named:
            row = {name: values[number] for name, values in sources.items()}
        else:
            value = table.columns[INPUT][number]
            row = dict.fromkeys(task_io.inputs, None)
            if single:
                row = dict.fromkeys(task_io.inputs, list(value) if isinstance(value, tuple) else value)
            elif value is not None:
                if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != len(task_io.inputs):
                    raise InputError(f"{table.place(number)}: {value!r:.60}: expected {' and '.join(task_io.inputs)}")
                row = dict(zip(task_io.inputs, value, strict=True))
        collected.append(_fields(row, task_io, table, number, columns))
    return collected


def _fields(row: Mapping[str, Any], task_io: TaskIO, table: Table, number: int, columns: Mapping[str, str]) -> Any:
    def where(name: str) -> str:
        return table.place(number) + (f", column {columns[name]!r}" if table.is_named else "")

    try:
        fields = task_io.parse(row)
    except ValueError as error:
        name = next((name for name in task_io.inputs if repr(name) in str(error)), next(iter(task_io.inputs)))
        kind = "a list of words" if task_io.inputs[name] == "texts" else "text"
        raise InputError(
            f"{where(name)}: is {type(row[name]).__name__} ({row[name]!r:.40}), expected {kind}; convert it, for "
            "example with astype(str), or leave the row out"
        ) from error
    for part in fields or ():
        if "\0" in part:
            raise InputError(f"{table.place(number)}: contains a NUL character; remove it")
        if len(part) > LONGEST:
            raise InputError(f"{table.place(number)}: {len(part):,} characters, more than {LONGEST:,}; cut the text")
    return fields


def _values(values: list[Any]) -> list[Any]:
    return [_value(value) for value in values]


def _of_arrow(data: Any) -> dict[str, list[Any]] | None:
    """The columns of a table of Arrow, polars or Hugging Face; None for other data."""
    if hasattr(data, "features") and hasattr(data, "to_dict"):
        return {str(name): _values(values) for name, values in data.to_dict().items()}
    if not hasattr(data, "__arrow_c_stream__") and not isinstance(data, pa.Table | pa.RecordBatch):
        return None
    table = pa.table(data)
    return {str(name): _values(table.column(number).to_pylist()) for number, name in enumerate(table.column_names)}


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_value, value)) if type(value) in (list, tuple) else value
    if isinstance(value, np.ndarray):
        return _values(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    return None if value is None or value is pd.NA or value is pd.NaT or value != value else value


def _encodable(text: str) -> str:
    """A text without lone surrogates, which no file can hold: pairs become characters, others U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _of_array(array: np.ndarray) -> list[Any]:
    """(N,) or (N, 1) -> N values; (N, 2) -> N pairs."""
    if array.ndim == 2 and array.shape[1] == 2:
        return [tuple(row) for row in array.tolist()]
    if array.ndim == 2 and array.shape[1] == 1:
        return list(array[:, 0].tolist())
    if array.ndim != 1:
        raise InputError(f"data: an array of shape {array.shape}; expected (N,) texts or (N, 2) pairs of texts")
    return list(array.tolist())


def _row(number: int) -> str:
    return f"row {number}"


def _place(index: pd.Index) -> Callable[[int], str]:
    if isinstance(index, pd.RangeIndex) and index.start == 0 and index.step == 1:
        return _row
    return lambda number: f"row {number} (index {index[number]!r})"


def _read_file(path: Path) -> Table:
    if not os.path.exists(str(path).partition("#")[0]):  # noqa: PTH110 -- a long text is no path, and no error
        raise InputError(f"{path}: does not exist; to pass one text, put it in a list")
    splits: dict[str, Path] = {} if "#" in path.name else split_files(path)
    path = splits.get("train", path)
    if path.suffix.lower() == ".txt" and "*" not in path.name and not _is_table(path):
        texts = [line for _, line in lines(path, Reading()) if line.strip()]
        return Table({INPUT: texts}, lambda number: f"{path}, text {number + 1}", source=str(path))
    bad: list[DataError] = []
    opened = open_rows(path, rejected=lambda error, row: bad.append(error))
    places: list[str] = []
    rows: list[dict[str, Any]] = []
    names = dict.fromkeys(opened.names)
    for where, row in opened.rows:
        places.append(where)
        rows.append(row)
        names |= dict.fromkeys(row)
    if bad and (opened.form == "jsonl" or are_too_many(len(bad), len(rows))):
        raise InputError(f"{bad[0]}; {len(bad):,} of {len(rows) + len(bad):,} rows cannot be read")
    columns = {name: _values([row.get(name) for row in rows]) for name in names}
    columns = {name: values for name, values in columns.items() if any(values) or not NAMELESS.fullmatch(name)}
    notes = list(reading_in_words(opened, bad))
    notes += [f"{path} is read, without {' and '.join(further)}"] if (further := [*splits][1:]) else []
    return Table(
        columns,
        lambda number: places[number],
        source=str(path),
        notes=notes,
        kind=opened.kind,
        ambiguous=opened.ambiguous,
        loads=opened.reading.loads,
    )


def _is_table(path: Path) -> bool:
    """Whether a txt file is a table or has labels or tags; texts may have equally many commas."""
    try:
        form = form_of(path)
        if form == "csv":
            opened = open_rows(path)
            return opened.header and not USUAL.isdisjoint(map(str.casefold, opened.names))
        return form != "json"
    except DataError:
        return False
