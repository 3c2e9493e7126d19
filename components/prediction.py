"""Label the texts of a file with a classifier, batch by batch.

Reads csv, tsv, jsonl and parquet, writes any of them, whatever the size: only one batch is in memory. Every row comes
out with its own columns and two more, `prediction` and `confidence`; a row without text gets neither. The output is
written aside and renamed, so it is whole or absent.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.errors import DataError

Row = dict[str, Any]
#: The columns that predicting adds.
ADDED = ("prediction", "confidence")
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")


class Classifier(Protocol):
    """What can label texts: `labels` (C names), `predict(texts, batch_size)` -> probabilities (N, C), rows sum to 1."""

    @property
    def labels(self) -> Sequence[str]: ...

    def predict(self, texts: Sequence[str], batch_size: int = ...) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class Answer:
    """A text's label; all three are None for an empty text."""

    label: str | None = None
    confidence: float | None = None
    probabilities: dict[str, float] | None = None


@dataclass(frozen=True)
class Predicted:
    """Rows written, and how many of them had no text."""

    rows: int
    empty: int


def label_texts(classifier: Classifier, texts: Sequence[str | None], *, batch_size: int = 64) -> list[Answer]:
    """Label texts in their order; empty ones (None or white space) are not shown to the model.

    Args:
        classifier: the model.
        texts: N texts.
        batch_size: texts at a time.

    Returns:
        N answers.
    """
    filled = [index for index, text in enumerate(texts) if text is not None and text.strip()]
    answers = [Answer()] * len(texts)
    if filled:
        probabilities = np.asarray(classifier.predict([str(texts[index]) for index in filled], batch_size))
        for index, row in zip(filled, probabilities, strict=True):
            best = int(row.argmax())
            by_label = {label: float(value) for label, value in zip(classifier.labels, row, strict=True)}
            answers[index] = Answer(classifier.labels[best], float(row[best]), by_label)
    return answers


def predict_file(
    source: Path,
    *,
    output: Path,
    classifier: Classifier,
    text: str = "text",
    batch_size: int = 64,
    progress: Callable[[int], None] | None = None,
) -> Predicted:
    """Label every row of `source` and write it to `output`; the suffixes say the formats.

    Args:
        source: csv or tsv (with a header line), jsonl or parquet.
        output: likewise; replaced if it exists.
        classifier: the model.
        text: name of the column that holds the text.
        batch_size: rows at a time.
        progress: called with the number of rows of each batch done.

    Raises:
        DataError: a file that is missing, empty, of an unknown format, damaged, or without the column; the message
            names the line.
    """
    source, output = Path(source), Path(output)
    for path in (source, output):
        if path.suffix not in FORMATS:
            raise DataError(f"{path}: unknown format {path.suffix or '(no suffix)'!r}; known: {', '.join(FORMATS)}")
    if not source.is_file():
        raise DataError(f"{source}: does not exist")
    if source.stat().st_size == 0:
        raise DataError(f"{source}: is empty")
    rows = empty = 0
    with ExitStack() as stack:
        columns, schema, batches = _READERS[source.suffix](stack, source, batch_size, text)
        taken = [name for name in ADDED if name in columns]
        if taken:
            raise DataError(f"{source}: already has a column {taken[0]!r}; rename it")
        write = stack.enter_context(_writing(output, [*columns, *ADDED], schema))
        for batch in batches:
            answers = label_texts(classifier, [row[text] for row in batch], batch_size=batch_size)
            write(
                [
                    row | {"prediction": answer.label, "confidence": answer.confidence}
                    for row, answer in zip(batch, answers, strict=True)
                ]
            )
            rows += len(batch)
            empty += sum(answer.label is None for answer in answers)
            if progress is not None:
                progress(len(batch))
    return Predicted(rows=rows, empty=empty)


# -- reading ---------------------------------------------------------------------------------------------------------

Opened = tuple[list[str], pa.Schema | None, Iterator[list[Row]]]


def _read_delimited(stack: ExitStack, path: Path, batch_size: int, text: str) -> Opened:
    csv.field_size_limit(2**31 - 1)
    file = stack.enter_context(path.open(encoding="utf-8-sig", newline=""))
    reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
    try:
        columns = list(reader.fieldnames or [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}:1: {_unreadable(error)}") from error
    _require(path, text, columns)

    def rows() -> Iterator[Row]:
        try:
            for row in reader:
                if None in row:
                    raise DataError(f"{path}:{reader.line_num}: has more fields than the header's {len(columns)}")
                yield row
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{path}:{reader.line_num + 1}: {_unreadable(error)}") from error

    return columns, None, _batches(rows(), batch_size)


def _read_jsonl(stack: ExitStack, path: Path, batch_size: int, text: str) -> Opened:
    file = stack.enter_context(path.open("rb"))

    def rows() -> Iterator[Row]:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except (UnicodeDecodeError, json.JSONDecodeError) as error:
                raise DataError(f"{path}:{number}: {_unreadable(error)}") from error
            if not isinstance(row, dict):
                raise DataError(f"{path}:{number}: expected an object with key {text!r}, found {type(row).__name__}")
            if text not in row:
                raise DataError(f"{path}:{number}: has no key {text!r}; found: {', '.join(row) or 'none'}")
            if taken := [name for name in ADDED if name in row]:
                raise DataError(f"{path}:{number}: already has a key {taken[0]!r}; rename it")
            if row[text] is not None and not isinstance(row[text], str):
                raise DataError(f"{path}:{number}: {text!r} is {type(row[text]).__name__}, expected text")
            yield row

    everything = rows()
    first = next(everything, None)
    if first is None:
        raise DataError(f"{path}: is empty")

    def chained() -> Iterator[Row]:
        yield first
        yield from everything

    return list(first), None, _batches(chained(), batch_size)


def _read_parquet(stack: ExitStack, path: Path, batch_size: int, text: str) -> Opened:
    try:
        file = stack.enter_context(pq.ParquetFile(path))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a whole parquet file ({error})") from error
    schema = file.schema_arrow
    _require(path, text, schema.names)
    kind = schema.field(text).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise DataError(f"{path}: column {text!r} is {kind}, expected text")

    def batches() -> Iterator[list[Row]]:
        try:
            for batch in file.iter_batches(batch_size):
                yield batch.to_pylist()
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{path}: damaged ({error})") from error

    return list(schema.names), schema, batches()


_READERS = {".csv": _read_delimited, ".tsv": _read_delimited, ".jsonl": _read_jsonl, ".parquet": _read_parquet}


def _require(path: Path, text: str, columns: Sequence[str]) -> None:
    if text not in columns:
        raise DataError(f"{path}: has no column {text!r}; found: {', '.join(columns) or 'none'}")


def _unreadable(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8; convert the file (iconv -f LATIN1 -t UTF-8)"
    return f"not readable ({error})"


def _batches(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


# -- writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def _writing(path: Path, columns: list[str], schema: pa.Schema | None) -> Iterator[Callable[[list[Row]], None]]:
    """A function that writes rows; the file appears under its name once all are written."""
    aside = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            yield _WRITERS[path.suffix](stack, aside, columns, schema)
        aside.replace(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}); free space or choose another place") from error
    except _MisfitError as error:
        raise DataError(f"{path}: {error}; write .jsonl instead") from error
    finally:
        with suppress(OSError):
            aside.unlink()


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
    stack: ExitStack, path: Path, columns: list[str], schema: pa.Schema | None
) -> Callable[[list[Row]], None]:
    file = stack.enter_context(path.open("w", encoding="utf-8", newline=""))
    delimiter = "\t" if path.suffix == ".tsv" else ","
    writer = csv.DictWriter(file, columns, delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    return lambda rows: writer.writerows(_fit(rows, columns))


def _write_jsonl(
    stack: ExitStack, path: Path, columns: list[str], schema: pa.Schema | None
) -> Callable[[list[Row]], None]:
    file = stack.enter_context(path.open("w", encoding="utf-8"))
    return lambda rows: file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)


class _ParquetWriter:
    """Rows into a parquet file. The types are those of the source, or of the first batch where it has none; they are
    settled at the latest when the file is closed, so that no rows make an empty table of text columns."""

    def __init__(self, path: Path, columns: list[str], schema: pa.Schema | None) -> None:
        self._path = path
        self._columns = columns
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None

    def __call__(self, rows: list[Row]) -> None:
        try:
            if self._writer is None:
                first = pa.Table.from_pylist(_fit(rows, self._columns)).schema
                self._open(first if self._schema is None else self._schema)
            assert self._writer is not None
            self._writer.write_table(pa.Table.from_pylist(_fit(rows, self._columns), schema=self._writer.schema))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise _MisfitError(f"rows differ in their types ({error})") from error

    def close(self) -> None:
        if self._writer is None:
            texts = pa.schema([pa.field(name, pa.string()) for name in self._columns if name not in ADDED])
            self._open(texts if self._schema is None else self._schema)
        assert self._writer is not None
        self._writer.close()

    def _open(self, schema: pa.Schema) -> None:
        own = [field for field in schema if field.name not in ADDED]
        added = [pa.field("prediction", pa.string()), pa.field("confidence", pa.float64())]
        self._writer = pq.ParquetWriter(self._path, pa.schema([*own, *added], metadata=schema.metadata))


def _write_parquet(
    stack: ExitStack, path: Path, columns: list[str], schema: pa.Schema | None
) -> Callable[[list[Row]], None]:
    return stack.enter_context(closing(_ParquetWriter(path, columns, schema)))


_WRITERS = {".csv": _write_delimited, ".tsv": _write_delimited, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
