"""The files that a prediction writes, in csv, tsv, jsonl or parquet: its output, and the rejected rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
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
                self._path.parent.mkdir(parents=True, exist_ok=True)
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
    with ExitStack() as outer:
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = outer.enter_context(partial_path(path))
        with ExitStack() as stack:
            with write_errors(path):
                write = WRITTEN[path.suffix](stack, partial, list(names), added, schema, header)

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
        with write_errors(path):
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


def _fit(rows: list[Row], columns: list[str]) -> list[Row]:
    choices = set(columns)
    for row in rows:
        if row.keys() - choices:
            name = min(row.keys() - choices)
            raise _FormatError(f"a row has the column {name!r}, which the first row does not have")
    return rows


def _write_delimited(
    stack: ExitStack, path: Path, names: list[str], added: pa.Schema, schema: pa.Schema | None, header: bool
) -> Callable[[list[Row]], None]:
    file = stack.enter_context(path.open("w", encoding="utf-8", newline=""))
    columns = [*names, *added.names]
    write_row = row_writer(file, **DIALECTS[path.suffix])
    if header:
        write_row(map(escaped, columns))

    def write(rows: list[Row]) -> None:
        try:
            for row in _fit(rows, columns):
                write_row(_cell(row.get(name, "")) for name in columns)
        except csv.Error as error:
            raise _FormatError("a value contains a tab or a line break, which a tsv cannot represent") from error

    return write


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else escaped(value)


def _write_jsonl(
    stack: ExitStack, path: Path, names: list[str], added: pa.Schema, schema: pa.Schema | None, header: bool
) -> Callable[[list[Row]], None]:
    file = stack.enter_context(path.open("w", encoding="utf-8"))
    return lambda rows: file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)


class _ParquetWriter:
    """Writes a parquet file with the types of the source, or of the first batch; without both, text."""

    def __init__(self, path: Path, names: list[str], added: pa.Schema, schema: pa.Schema | None) -> None:
        self._path = path
        self._names = names
        self._added = added
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None

    def __call__(self, rows: list[Row]) -> None:
        columns = [*self._names, *self._added.names]
        try:
            if self._writer is None:
                first = pa.Table.from_pylist(_fit(rows, columns)).schema
                self._open(first if self._schema is None else self._schema)
            assert self._writer is not None
            self._writer.write_table(pa.Table.from_pylist(_fit(rows, columns), schema=self._writer.schema))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise _FormatError(f"rows differ in their types ({error})") from error

    def close(self) -> None:
        if self._writer is None:
            texts = pa.schema([pa.field(name, pa.string()) for name in self._names])
            self._open(texts if self._schema is None else self._schema)
        assert self._writer is not None
        self._writer.close()

    def _open(self, schema: pa.Schema) -> None:
        local = [field for field in schema if field.name not in self._added.names]
        self._writer = pq.ParquetWriter(self._path, pa.schema([*local, *self._added], metadata=schema.metadata))


def _write_parquet(
    stack: ExitStack, path: Path, names: list[str], added: pa.Schema, schema: pa.Schema | None, header: bool
) -> Callable[[list[Row]], None]:
    return stack.enter_context(closing(_ParquetWriter(path, names, added, schema)))


#: Suffix -> writer.
WRITTEN = {".csv": _write_delimited, ".tsv": _write_delimited, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
