"""Let a model answer every row of a file, batch by batch.

Reads csv, tsv, jsonl and parquet, writes any of them, whatever the size: only one batch is in memory. Every row comes
out with its own columns and those of its task's answers (`components.tasks.task_io`): `prediction` and `confidence`,
or the spans of a tagging, or the place of an answer. A row that lacks a part of its input gets none of them. The output
is written aside and renamed, so it is whole or absent.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from components.artifacts import partial_path
from components.errors import ConfigError, DataError, nearest
from components.formats.json_text import loads
from components.tasks.data import Answer, Fields
from components.tasks.kinds import find_kind
from components.tasks.task_io import TaskIO, Value

Row = dict[str, Any]
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
#: As labelled files are read (`components.formats.tables`): in a tsv quotes are characters like any other.
_DIALECTS: dict[str, dict[str, Any]] = {
    ".csv": {"delimiter": ","},
    ".tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None},
}
#: Rows answered together, so that some are of like length; fewer, if they have so many characters. Parquet's at a time.
ROWS, CHARACTERS, READ_ROWS = 4096, 4_000_000, 512
_TYPES: dict[Value, pa.DataType] = {
    "text": pa.string(),
    "number": pa.float64(),
    "integer": pa.int64(),
    "spans": pa.list_(
        pa.struct([("start", pa.int64()), ("end", pa.int64()), ("type", pa.string()), ("text", pa.string())])
    ),
}


class Classifier(Protocol):
    """What can answer rows of a kind of task: `labels` (names, by number), `answer(rows, batch_size)` -> N answers."""

    @property
    def kind(self) -> str: ...

    @property
    def labels(self) -> Sequence[str]: ...

    def answer(self, rows: Sequence[Fields], batch_size: int = ...) -> Sequence[Answer]: ...


@dataclass(frozen=True)
class Predicted:
    """Rows written, and how many of them had nothing to answer."""

    rows: int
    empty: int


def told(
    classifier: Classifier, rows: Sequence[Fields | None], *, batch_size: int = ROWS
) -> list[dict[str, Any] | None]:
    """What a model says of rows, in their order, by the names of its form; None for a row that is None.

    Args:
        classifier: the model.
        rows: N inputs; None (a part is missing) is not shown to the model.
        batch_size: rows at a time.
    """
    form = find_kind(classifier.kind).io
    filled = [index for index, fields in enumerate(rows) if fields is not None]
    answers: list[dict[str, Any] | None] = [None] * len(rows)
    if filled:
        asked = [fields for fields in rows if fields is not None]
        found = classifier.answer(asked, batch_size)
        for index, fields, answer in zip(filled, asked, found, strict=True):
            answers[index] = form.format(fields, answer, classifier.labels)
    return answers


def predict_file(
    source: Path,
    *,
    output: Path,
    classifier: Classifier,
    columns: Mapping[str, str] | None = None,
    batch_size: int = ROWS,
    progress: Callable[[int], None] | None = None,
) -> Predicted:
    """Answer every row of `source` and write it to `output`; the suffixes say the formats.

    Args:
        source: csv or tsv (with a header line), jsonl or parquet.
        output: likewise; replaced if it exists.
        classifier: the model.
        columns: what the file calls the inputs of the model's form, where it is not by their own names.
        batch_size: rows at a time, at most.
        progress: called with the number of rows of each batch done.

    Raises:
        ConfigError: `columns` names an input that the task does not have.
        DataError: a file that is missing, empty, of an unknown format, damaged, or without a column; the message
            names the line.
    """
    source, output, form = Path(source), Path(output), find_kind(classifier.kind).io
    for path in (source, output):
        if path.suffix not in FORMATS:
            raise DataError(f"{path}: unknown format {path.suffix or '(no suffix)'!r}; known: {', '.join(FORMATS)}")
    if unknown := sorted(set(columns or {}) - set(form.inputs)):
        raise ConfigError(f"the task reads no {unknown[0]!r}{nearest(unknown[0], form.inputs)}")
    if not source.is_file():
        raise DataError(f"{source}: does not exist")
    if source.stat().st_size == 0:
        raise DataError(f"{source}: is empty")
    asking = _Asking(form, {name: name for name in form.inputs} | dict(columns or {}))
    rows = empty = 0
    with ExitStack() as stack:
        names, schema, batches = _READERS[source.suffix](stack, source, batch_size, asking)
        if taken := [name for name in form.columns if name in names]:
            raise DataError(f"{source}: already has a column {taken[0]!r}; rename it")
        write = stack.enter_context(_writing(output, names, form, schema))
        for batch in batches:
            answers = told(classifier, [fields for _, fields in batch], batch_size=batch_size)
            filed = ({name: answer[name] if answer else None for name in form.columns} for answer in answers)
            write([row | said for (row, _), said in zip(batch, filed, strict=True)])
            rows += len(batch)
            empty += sum(answer is None for answer in answers)
            if progress is not None:
                progress(len(batch))
    return Predicted(rows=rows, empty=empty)


def named_columns(pairs: Sequence[str]) -> dict[str, str]:
    """`["first=one", "second=two"]` -> what a file calls the inputs; a name alone stands for `text=` and the name.

    Raises:
        ConfigError: a pair lacks a side, or an input is named twice.
    """
    columns: dict[str, str] = {}
    for pair in pairs:
        name, separator, column = pair.partition("=")
        if not separator:
            name, column = "text", pair
        if not name or not column or name in columns:
            raise ConfigError(f"column {pair!r}: expected INPUT=COLUMN, once for each input")
        columns[name] = column
    return columns


@dataclass(frozen=True)
class _Asking:
    """What is asked of a file's rows; `columns`: input of the form -> column."""

    form: TaskIO
    columns: Mapping[str, str]

    def fields(self, row: Row, place: str) -> Fields | None:
        """The parts of a row's input.

        Raises:
            DataError: a value is not what it should be; `place` stands in the message.
        """
        try:
            return self.form.parse({name: row[column] for name, column in self.columns.items()})
        except ValueError as error:
            message = str(error)
            for name, column in self.columns.items():
                message = message.replace(repr(name), repr(column))
            raise DataError(f"{place}: {message}") from error

    def missing(self, names: Sequence[str]) -> str | None:
        """A column that is not among `names`."""
        return next((column for column in self.columns.values() if column not in names), None)


# -- reading ---------------------------------------------------------------------------------------------------------

Asked = tuple[Row, Fields | None]
Opened = tuple[list[str], pa.Schema | None, Iterator[list[Asked]]]


def _read_delimited(stack: ExitStack, path: Path, batch_size: int, asking: _Asking) -> Opened:
    csv.field_size_limit(2**31 - 1)
    file = stack.enter_context(path.open(encoding="utf-8-sig", newline=""))
    reader = csv.DictReader(file, strict=True, **_DIALECTS[path.suffix])
    try:
        columns = list(reader.fieldnames or [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}:1: {_unreadable(error)}") from error
    _require(path, asking, columns)

    def rows() -> Iterator[Asked]:
        try:
            for row in reader:
                if None in row:
                    raise DataError(f"{path}:{reader.line_num}: has more fields than the header's {len(columns)}")
                yield row, asking.fields(row, f"{path}:{reader.line_num}")
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{path}:{reader.line_num + 1}: {_unreadable(error)}") from error

    return columns, None, _batches(rows(), batch_size)


def _read_jsonl(stack: ExitStack, path: Path, batch_size: int, asking: _Asking) -> Opened:
    file = stack.enter_context(path.open("rb"))
    inputs = list(asking.columns.values())

    def rows() -> Iterator[Asked]:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row, _ = loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except ValueError as error:
                raise DataError(f"{path}:{number}: {_unreadable(error)}") from error
            if not isinstance(row, dict):
                raise DataError(
                    f"{path}:{number}: expected an object with key {inputs[0]!r}, found {type(row).__name__}"
                )
            if (missing := asking.missing(list(row))) is not None:
                raise DataError(f"{path}:{number}: has no key {missing!r}; found: {', '.join(row) or 'none'}")
            if taken := [name for name in asking.form.columns if name in row]:
                raise DataError(f"{path}:{number}: already has a key {taken[0]!r}; rename it")
            yield row, asking.fields(row, f"{path}:{number}")

    everything = rows()
    first = next(everything, None)
    if first is None:
        raise DataError(f"{path}: is empty")
    return list(first[0]), None, _batches(chain([first], everything), batch_size)


def _read_parquet(stack: ExitStack, path: Path, batch_size: int, asking: _Asking) -> Opened:
    try:
        file = stack.enter_context(pq.ParquetFile(path))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a whole parquet file ({error})") from error
    schema = file.schema_arrow
    _require(path, asking, schema.names)
    for name, column in asking.columns.items():
        kind, lists = schema.field(column).type, asking.form.inputs[name] == "texts"
        if not (_is_text(kind) or (lists and _is_list_of_text(kind))):
            raise DataError(f"{path}: column {column!r} is {kind}, expected {'a list of texts' if lists else 'text'}")

    def rows() -> Iterator[Asked]:
        number = 0
        try:
            for batch in file.iter_batches(min(batch_size, READ_ROWS)):
                for row in batch.to_pylist():
                    number += 1
                    yield row, asking.fields(row, f"{path}: row {number}")
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{path}: damaged ({error})") from error

    return list(schema.names), schema, _batches(rows(), batch_size)


_READERS = {".csv": _read_delimited, ".tsv": _read_delimited, ".jsonl": _read_jsonl, ".parquet": _read_parquet}


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_list_of_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_text(kind.value_type)


def _require(path: Path, asking: _Asking, columns: Sequence[str]) -> None:
    if (missing := asking.missing(columns)) is not None:
        raise DataError(f"{path}: has no column {missing!r}; found: {', '.join(columns) or 'none'}")


def _unreadable(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8; convert the file (iconv -f LATIN1 -t UTF-8)"
    return f"not readable ({error})"


def _batches(rows: Iterator[Asked], size: int) -> Iterator[list[Asked]]:
    batch: list[Asked] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += sum(map(len, row[1] or ()))
        if len(batch) == size or characters >= CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


# -- writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def _writing(
    path: Path, names: Sequence[str], form: TaskIO, schema: pa.Schema | None
) -> Iterator[Callable[[list[Row]], None]]:
    """A function that writes rows with the columns `names` and the form's; the file appears under its name once all
    are written."""
    added = pa.schema([pa.field(name, _TYPES[value]) for name, value in form.columns.items()])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_path(path) as aside:
            with ExitStack() as stack:
                yield _WRITERS[path.suffix](stack, aside, list(names), added, schema)
            aside.replace(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}); free space or choose another place") from error
    except _MisfitError as error:
        raise DataError(f"{path}: {error}; write .jsonl instead") from error


class _MisfitError(Exception):
    """A row that a format with fixed columns cannot hold."""


def _fit(rows: list[Row], columns: list[str]) -> list[Row]:
    known = set(columns)
    for row in rows:
        if row.keys() - known:
            name = min(row.keys() - known)
            raise _MisfitError(f"a row has the column {name!r}, which the first row does not have")
    return rows


def _write_delimited(
    stack: ExitStack, path: Path, names: list[str], added: pa.Schema, schema: pa.Schema | None
) -> Callable[[list[Row]], None]:
    file = stack.enter_context(path.open("w", encoding="utf-8", newline=""))
    columns = [*names, *added.names]
    writer = csv.DictWriter(file, columns, lineterminator="\n", **_DIALECTS[path.suffix])
    writer.writeheader()

    def write(rows: list[Row]) -> None:
        try:
            writer.writerows({name: _cell(value) for name, value in row.items()} for row in _fit(rows, columns))
        except csv.Error as error:
            raise _MisfitError("a value holds a tab or a line break, for which a tsv has no place") from error

    return write


def _cell(value: Any) -> Any:
    """What these formats cannot hold is written as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _write_jsonl(
    stack: ExitStack, path: Path, names: list[str], added: pa.Schema, schema: pa.Schema | None
) -> Callable[[list[Row]], None]:
    file = stack.enter_context(path.open("w", encoding="utf-8"))
    return lambda rows: file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)


class _ParquetWriter:
    """Rows into a parquet file. The types are those of the source, or of the first batch where it has none; they are
    settled at the latest when the file is closed, so that no rows make an empty table of text columns."""

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
            raise _MisfitError(f"rows differ in their types ({error})") from error

    def close(self) -> None:
        if self._writer is None:
            texts = pa.schema([pa.field(name, pa.string()) for name in self._names])
            self._open(texts if self._schema is None else self._schema)
        assert self._writer is not None
        self._writer.close()

    def _open(self, schema: pa.Schema) -> None:
        own = [field for field in schema if field.name not in self._added.names]
        self._writer = pq.ParquetWriter(self._path, pa.schema([*own, *self._added], metadata=schema.metadata))


def _write_parquet(
    stack: ExitStack, path: Path, names: list[str], added: pa.Schema, schema: pa.Schema | None
) -> Callable[[list[Row]], None]:
    return stack.enter_context(closing(_ParquetWriter(path, names, added, schema)))


_WRITERS = {".csv": _write_delimited, ".tsv": _write_delimited, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
