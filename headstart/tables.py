"""What a user passes as data, as rows with a place for messages.

Data are a DataFrame, a Series, the path of a file or folder of any format of `components.data.formats.rows` (or lines
of a .txt), a list of dicts, or a list or array of inputs: texts, pairs of texts, or lists of words.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from components.cli.onboarding.splits import split_files
from components.core.errors import DataError, nearest
from components.data.formats.layouts import rows_of
from components.data.formats.lines import Reading, lines
from components.data.formats.rows import form_of_texts
from components.data.sampling import Rows, by_column, read_rows
from components.data.tasks.data import Fields
from components.data.tasks.task_io import TaskIO, WrongValueError
from components.learners.prediction import not_read

#: Name of the column of a list of inputs.
INPUT = "input"
Data = Any


class InputError(DataError, ValueError):
    """An argument or a value of the data is wrong; a ValueError too, as in scikit-learn."""


@dataclass(frozen=True)
class Table(Rows):
    """Rows and their places.

    Attributes:
        index: of a DataFrame or Series; None for other data.
        source: what the data are, for messages.
        is_named: whether the columns have names that the user has given.
    """

    index: pd.Index | None = None
    source: str = "the data"
    is_named: bool = True

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def column(self, name: str) -> list[Any]:
        """The values of a column.

        Raises:
            InputError: there is none.
        """
        if name not in self.columns:
            raise InputError(f"{self.source}: has no column {name!r}{nearest(str(name), self.columns)}")
        if name in self.ambiguous:
            raise InputError(f"{self.source}: has two columns {name!r}; rename one of them")
        return self.columns[name]


def path_of(name: str, value: Any) -> Path:
    """An argument as a path. Raises InputError: it is none."""
    try:
        Path(value).exists()
        return Path(value)
    except (TypeError, OSError) as error:
        raise InputError(f"{name}: {value!r:.60}: {error}; give the name of a folder or file") from error


def read_table(data: Data, *of_texts: Collection[str]) -> Table:
    """The rows of any data. `of_texts`: arguments of `form_of_texts`, for a txt file.

    Raises:
        InputError: the data have another form.
        DataError: a file is missing or damaged (file and line).
    """
    if isinstance(data, str | Path):
        return _read_file(Path(data), *of_texts)
    data = list(data) if isinstance(data, Iterator) else data
    said, columns = "", _columns_of(data)
    is_named = not isinstance(data, pd.Series | np.ndarray)
    if columns is None and isinstance(data, Mapping | Sequence) and not isinstance(data, bytes):
        rows, _, said = rows_of(dict(data) if isinstance(data, Mapping) else list(data))
        if isinstance(rows, Mapping):
            return read_table(pd.DataFrame(rows))
        is_named = bool(rows) and all(isinstance(row, Mapping) for row in rows)
        columns = by_column(rows) if is_named else {INPUT: rows}
    if columns is None:
        raise InputError(
            f"data: {type(data).__name__} is not supported; give a DataFrame, the path of a csv, tsv, jsonl or parquet "
            "file, a list of dicts, or a list of texts"
        )
    further: dict[str, Any] = {"read": [f"layout: {said}"] if said else []}
    index = data.index if isinstance(data, pd.DataFrame | pd.Series) else None
    if index is not None and not index.equals(pd.RangeIndex(len(index))):
        further["place"] = lambda number: f"row {number} (index {index[number]!r})"
    values = {name: [*map(_value, values)] for name, values in columns.items()}
    return Table(values, index=index, source=f"the {type(data).__name__}", is_named=is_named, **further)


def _columns_of(data: Any) -> dict[str, list[Any]] | None:
    """The columns of a frame, of a table of Arrow, polars or Hugging Face, of a Series, or of an array of N values or N
    pairs; None for other data."""
    if isinstance(data, pd.DataFrame):
        names = [str(name) for name in data.columns]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"the DataFrame has two columns {twice[0]!r}; rename one")
        return {name: data.iloc[:, number].tolist() for number, name in enumerate(names)}
    if hasattr(data, "features") and hasattr(data, "to_dict"):
        return {str(name): values for name, values in data.to_dict().items()}
    if hasattr(data, "__arrow_c_stream__") and not isinstance(data, pd.Series):
        return dict(pa.table(data).to_pydict())
    if not isinstance(data, pd.Series | np.ndarray):
        return None
    rows = data.tolist()
    if data.ndim == 2 and 1 <= data.shape[1] <= 2:
        rows = [tuple(row) if len(row) == 2 else row[0] for row in rows]
    elif data.ndim != 1:
        raise InputError(f"data: an array of shape {data.shape}; expected (N,) texts or (N, 2) pairs of texts")
    return {INPUT: rows}


def with_names(table: Table, names: Sequence[str]) -> Table:
    """A list of inputs as columns with these names; a table with names as it is.

    Raises:
        InputError: an input has not as many parts as there are names (row).
    """
    if table.is_named or INPUT not in table.columns:
        return table
    values = table.columns[INPUT]
    if len(names) == 1:
        return replace(table, columns={names[0]: [list(each) if isinstance(each, tuple) else each for each in values]})
    for number, each in enumerate(values):
        if each is not None and (isinstance(each, str) or not isinstance(each, Sequence) or len(each) != len(names)):
            raise InputError(f"{table.place(number)}: {each!r:.60}: expected {' and '.join(names)}")
    columns = {name: [each and each[at] for each in values] for at, name in enumerate(names)}
    return replace(table, columns=columns)


def parsed(table: Table, task_io: TaskIO, columns: Mapping[str, str]) -> list[Fields | None]:
    """The inputs of a task in the rows; None: a part of the input is missing.

    Args:
        task_io: of the kind of task.
        columns: input of the task -> column of the table; an input that it lacks has its own name.

    Raises:
        InputError: a column is missing, or a value has the wrong type (row and column).
    """
    table = with_names(table, [*task_io.inputs])
    columns = {name: columns.get(name, name) for name in task_io.inputs}
    inputs: list[Fields | None] = []
    for number, row in enumerate(zip(*map(table.column, columns.values()), strict=True)):
        try:
            fields = task_io.parse(values := dict(zip(columns, row, strict=True)))
        except WrongValueError as error:
            where = table.place(number) + f", column {columns[error.name]!r}" * table.is_named
            what, *expected = error.what.split(", expected ", 1)
            what = ", expected ".join((f"{what} ({values[error.name]!r:.40})", *expected))
            do = "convert it, for example with astype(str), or leave the row out"
            raise InputError(what, where=where, do=do) from error
        if fields is not None and (what := not_read(fields)):
            raise InputError(f"{table.place(number)}: {what}")
        inputs.append(fields)
    return inputs


def _value(value: Any) -> Any:
    """A value as JSON holds it. Of a text, lone surrogates, which no file can hold, become characters or U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if not value.isascii() else value
    if isinstance(value, list | tuple):
        return type(value)(map(_value, value)) if type(value) in (list, tuple) else value
    if isinstance(value, np.ndarray):
        return [*map(_value, value.tolist())]
    if isinstance(value, np.generic):
        value = value.item()
    return None if value is None or value is pd.NA or value is pd.NaT or value != value else value


def _read_file(path: Path, *of_texts: Collection[str]) -> Table:
    if not os.path.exists(str(path).partition("#")[0]):  # noqa: PTH110 -- a long text is no path, and no error
        raise InputError(f"{path}: does not exist; to pass one text, put it in a list")
    splits: dict[str, Path] = {} if "#" in path.name else split_files(path)
    path = splits.get("train", path)
    if form_of_texts(path, *of_texts):
        texts = {INPUT: [line for _, line in lines(path, Reading()) if line.strip()]}
        return Table(texts, source=str(path), is_named=False, place=lambda number: f"{path}, text {number + 1}")
    rows = read_rows(path, whole=True)
    notes = [*rows.read, *([f"{path} is read, without {' and '.join(others)}"] if (others := [*splits][1:]) else [])]
    # The format says how the keys of a file are written, and not what these columns are.
    given = {name: getattr(rows, name) for name in ("kind", "loads", "place", "ambiguous")}
    columns = {name: [*map(_value, values)] for name, values in rows.columns.items()}
    return Table(columns, source=str(path), read=notes, **given)
