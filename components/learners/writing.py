"""The files that a prediction writes, in csv, tsv, jsonl or parquet: its output, and the rejected rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.artifacts import partial_path
from components.core.errors import DataError, why_not
from components.data.formats.delimited import escaped, row_writer
from components.data.formats.tables import Row
from components.data.tasks.task_io import TaskIO, Value

#: Suffix -> arguments of writers of the module csv. In a tsv, quotes are ordinary characters.
DIALECTS: dict[str, dict[str, Any]] = {
    ".csv": {"delimiter": ",", "quoting": csv.QUOTE_MINIMAL},
    ".tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None},
}
_TYPES: dict[Value, pa.DataType] = {
    "text": pa.string(),
    "number": pa.float64(),
    "integer": pa.int64(),
    "boolean": pa.bool_(),
    "spans": pa.list_(
        pa.struct([("start", pa.int64()), ("end", pa.int64()), ("type", pa.string()), ("text", pa.string())])
    ),
}


class Rejects:
    """Writes rejected rows; the file exists only if there are some, and replaces the file of an earlier run."""

    def __init__(self, path: Path) -> None:
        self._path, self._stack = path, ExitStack()
        self._file: IO[str] | None = None
        self.count, self.first = 0, ""

    def __call__(self, error: DataError, row: Any) -> None:
        with write_errors(self._path):
            if self._file is None:
                self._partial = self._stack.enter_context(partial_path(self._path))
                self._file = self._stack.enter_context(self._partial.open("w", encoding="utf-8"))
            line = json.dumps({"reason": str(error), "row": row}, ensure_ascii=False, default=str)
            self._file.write(line.encode("utf-8", "replace").decode() + "\n")
        self.count += 1
        self.first = self.first or str(error)

    def __enter__(self) -> Rejects:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        with self._stack, write_errors(self._path):
            if self._file is not None:
                self._file.close()
                self._partial.replace(self._path)
            elif kind is None:
                self._path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Output:
    """What a format writes: a file with the columns `names` of the rows and those that are `added`; `schema`: types of
    the former, None: those of the first batch, without one text. `header`: whether the columns are named first."""

    path: Path
    names: list[str]
    added: pa.Schema
    schema: pa.Schema | None
    header: bool

    @property
    def columns(self) -> list[str]:
        return [*self.names, *self.added.names]

    def check(self, rows: Sequence[Row]) -> None:
        """Refuse rows with other columns."""
        for row in rows:
            if others := row.keys() - {*self.columns}:
                raise _FormatError(f"a row has the column {min(others)!r}, which the first row does not have")


@contextmanager
def open_output(
    path: Path, names: Sequence[str], task_io: TaskIO, schema: pa.Schema | None, *, header: bool
) -> Iterator[Callable[[list[Row]], None]]:
    """A function that writes rows with the columns `names` and the task's columns. The file is renamed to `path` at
    the end of the block.

    Only errors of writing are converted: an error of the block, such as one of the classifier, is not about `path`.

    Raises:
        DataError: the file cannot be written, or its format cannot represent a row.
    """
    added = pa.schema([pa.field(name, _TYPES[value]) for name, value in task_io.columns.items()])
    with ExitStack() as outer, ExitStack() as stack:
        with write_errors(path):
            partial = outer.enter_context(partial_path(path))
            write = WRITTEN[path.suffix](stack, _Output(partial, list(names), added, schema, header))

        def write_rows(rows: list[Row]) -> None:
            with write_errors(path):
                write(rows)

        try:
            yield write_rows
        except BaseException:
            with suppress(OSError):  # on a full disk, closing fails again
                stack.close()
            raise
        with write_errors(path):
            stack.close()
            partial.replace(path)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """A block whose errors of writing are DataErrors about `path`."""
    try:
        yield
    except OSError as error:
        what = f"cannot be written ({why_not(error)}); free space or choose another path"
        raise DataError(what, where=path) from error
    except _FormatError as error:
        raise DataError(f"{error}; write .jsonl instead", where=path) from error


class _FormatError(Exception):
    """A format with fixed columns cannot represent a row."""


def _write_delimited(stack: ExitStack, output: _Output) -> Callable[[list[Row]], None]:
    file = stack.enter_context(output.path.open("w", encoding="utf-8", newline=""))
    write_row = row_writer(file, **DIALECTS[output.path.suffix])
    if output.header:
        write_row(map(escaped, output.columns))

    def write(rows: list[Row]) -> None:
        output.check(rows)
        try:
            for row in rows:
                write_row(_cell(row.get(name, "")) for name in output.columns)
        except csv.Error as error:
            raise _FormatError("a value contains a tab or a line break, which a tsv cannot represent") from error

    return write


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else escaped(value)


def _write_jsonl(stack: ExitStack, output: _Output) -> Callable[[list[Row]], None]:
    file = stack.enter_context(output.path.open("w", encoding="utf-8"))
    return lambda rows: file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)


def _write_parquet(stack: ExitStack, output: _Output) -> Callable[[list[Row]], None]:
    writers: list[pq.ParquetWriter] = []

    def writer(inferred: pa.Schema) -> pq.ParquetWriter:
        if not writers:
            given = inferred if output.schema is None else output.schema
            kept = [field for field in given if field.name not in output.added.names]
            schema = pa.schema([*kept, *output.added], metadata=given.metadata)
            writers.append(stack.enter_context(pq.ParquetWriter(output.path, schema)))
        return writers[0]

    def write(rows: list[Row]) -> None:
        output.check(rows)
        try:
            opened = writer(pa.Table.from_pylist(rows).schema)
            opened.write_table(pa.Table.from_pylist(rows, schema=opened.schema))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise _FormatError(f"rows differ in their types ({error})") from error

    # A file without rows has its columns, too.
    stack.callback(lambda: writer(pa.schema([pa.field(name, pa.string()) for name in output.names])))
    return write


#: Suffix -> writer.
WRITTEN = {".csv": _write_delimited, ".tsv": _write_delimited, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
