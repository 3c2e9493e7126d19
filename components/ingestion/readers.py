"""Raw files as streams of rows: txt, jsonl, csv, tsv and parquet; plain, .gz or .zst.

A reader is a generator over one file; it holds one line (or one batch of a Parquet file) at a time. `READERS` maps
suffixes to readers: a new format is one function and one line in the table.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from components.config import CorpusSource, ParallelSource, TaskSource
from components.errors import DataError, nearest
from components.ingestion.lines import LINE_BYTES, Reading, lines, too_long

#: (line or row number from 1, values of the named columns; None where a value is null)
Row = tuple[int, tuple[str | None, ...]]

#: A text file is cut into documents where it says so; a longer stretch than this ends at the next empty line.
TEXT_DOCUMENT_CHARACTERS = 100_000
_PARQUET_ROWS = 4_096
_PARQUET_BYTES = 4_000_000
_WIKITEXT_TITLE = re.compile(r"\s?= [^=].* =\s*")


@dataclass(frozen=True)
class LabelledRow:
    """One example: `line` is its line (row of a Parquet file) in the file, `slice` and `id` are null if not named."""

    text: str
    label: str
    slice: str | None
    id: str | None
    line: int


def read_text(path: Path, columns: Sequence[str], header: bool, reading: Reading) -> Iterator[Row]:
    """Documents of a text file, in order, each numbered by its first line; the one column is the document.

    A document ends at a form feed, at two empty lines in a row (but not in a file with WikiText titles, ` = Title = `:
    there before each title), and, beyond 100,000 characters, at the next empty line (beyond 200,000 at the next line).
    Any other file is one document.
    """
    parts: list[str] = []
    start, size, empty, titled = 1, 0, 0, False
    for number, line in lines(path, reading):
        blank = not line.strip()
        empty = empty + 1 if blank else 0
        title = _WIKITEXT_TITLE.fullmatch(line) is not None
        titled = titled or title
        full = size >= TEXT_DOCUMENT_CHARACTERS and (blank or size >= 2 * TEXT_DOCUMENT_CHARACTERS)
        apart = title or full or (empty == 2 and not titled)
        for index, piece in enumerate(line.split("\f")):
            if parts and (apart or index > 0):
                yield start, ("\n".join(parts),) * len(columns)
                parts, size = [], 0
            if not parts:
                start = number
            if parts or piece.strip():
                parts.append(piece)
                size += len(piece) + 1
    if parts:
        yield start, ("\n".join(parts),) * len(columns)


def read_jsonl(path: Path, columns: Sequence[str], header: bool, reading: Reading) -> Iterator[Row]:
    """One JSON object a line; empty lines are skipped.

    Raises:
        DataError: a line that is no JSON object, lacks a column, or holds something else than text there.
    """
    for number, line in lines(path, reading):
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"{path}, line {number}: not valid JSON ({error}); every line must hold one object"
            ) from error
        if not isinstance(row, dict):
            raise DataError(
                f"{path}, line {number}: holds a JSON {type(row).__name__}, not an object with named values"
            )
        try:
            values = tuple([row[name] for name in columns])
        except KeyError as error:
            raise _no_column(f"{path}, line {number}", str(error.args[0]), row) from error
        yield number, tuple([value if value.__class__ is str else _text(path, number, value) for value in values])


def _text(path: Path, number: int, value: Any) -> str | None:
    """A value as text: numbers and booleans as JSON writes them (labels are often 0 and 1)."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise DataError(f"{path}, line {number}: holds a {type(value).__name__} where text is expected")


def read_csv(path: Path, columns: Sequence[str], header: bool, reading: Reading) -> Iterator[Row]:
    """Comma-separated values; fields in double quotes may hold commas, line breaks and doubled quotes (RFC 4180)."""
    return _separated(path, columns, header, reading, delimiter=",", quoting=csv.QUOTE_MINIMAL)


def read_tsv(path: Path, columns: Sequence[str], header: bool, reading: Reading) -> Iterator[Row]:
    """Tab-separated values, one row a line; quotes are characters like any other."""
    return _separated(path, columns, header, reading, delimiter="\t", quoting=csv.QUOTE_NONE)


def _separated(
    path: Path, columns: Sequence[str], header: bool, reading: Reading, *, delimiter: str, quoting: Literal[0, 3]
) -> Iterator[Row]:
    """Rows of a file with separators; without a header, columns are named "0", "1", ...

    Raises:
        DataError: a column that the header lacks, a row with another number of fields, a quote that never closes.
    """
    csv.field_size_limit(LINE_BYTES)
    stream = (line + "\n" for _, line in lines(path, reading))
    rows = csv.reader(stream, delimiter=delimiter, quoting=quoting, strict=True)
    first: list[str] | None = None
    indices: list[int] = []
    start = 1
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(
                f"{path}, row that begins on line {start}: {error}; look for a quote that is not closed or not doubled"
            ) from error
        number, start = start, rows.line_num + 1
        if not row:
            continue
        if first is None:
            first = row if header else [str(index) for index in range(len(row))]
            indices = [_column(path, name, first, header) for name in columns]
            if header:
                continue
        if len(row) != len(first):
            raise DataError(
                f"{path}, line {number}: {len(row)} fields, the first line has {len(first)}; "
                f"quote fields that hold the separator {delimiter!r}"
            )
        yield number, tuple([row[index] for index in indices])


def _column(path: Path, name: str, names: Sequence[str], header: bool) -> int:
    if name not in names:
        hint = "" if header else " (header: false, so columns are numbered from 0)"
        raise _no_column(f"{path}, line 1{hint}", name, names, "; if it has no header line, set header: false" * header)
    return names.index(name)


def read_parquet(path: Path, columns: Sequence[str], header: bool, reading: Reading) -> Iterator[Row]:
    """Rows of a Parquet file, some megabytes of them at a time; numbers are row numbers.

    Raises:
        DataError: a damaged file, a column that is missing or holds no text, a text over 8 MB.
    """
    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            names = file.schema_arrow.names
            for name in columns:
                if name not in names:
                    raise _no_column(str(path), name, names)
            number, before, size = 0, reading.consumed, path.stat().st_size
            for batch in file.iter_batches(batch_size=_rows_at_a_time(file), columns=list(dict.fromkeys(columns))):
                reading.text_bytes += batch.nbytes
                reading.consumed = before + size * (number + batch.num_rows) // file.metadata.num_rows
                values = [_text_column(path, name, batch.column(name)) for name in columns]
                for row in zip(*values, strict=True):
                    number += 1
                    if any(len(value) > LINE_BYTES for value in row if value is not None):
                        raise too_long(path, f"row {number}")
                    yield number, row
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: damaged or truncated Parquet file ({_first_line(error)}); copy it again") from error


def _rows_at_a_time(file: pq.ParquetFile) -> int:
    """Rows that take about 4 MB, by the average of the row group with the longest ones."""
    groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
    longest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return min(max(_PARQUET_BYTES // max(longest, 1), 1), _PARQUET_ROWS)


def _text_column(path: Path, name: str, column: pa.Array) -> list[str | None]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_nested(kind):
        raise DataError(f"{path}: column {name!r} holds {kind}, not text; write it as a string column")
    values: list[str | None] = column.cast(pa.string()).to_pylist()
    return values


def _no_column(where: str, name: str, names: Sequence[str] | dict[str, Any], more: str = "") -> DataError:
    return DataError(f"{where}: no column {name!r}{nearest(name, names)}; name the column in params.yaml{more}")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


Reader = Callable[[Path, Sequence[str], bool, Reading], Iterator[Row]]

#: Reader of each suffix; all but Parquet also read files with .gz or .zst behind it.
READERS: dict[str, Reader] = {
    ".txt": read_text,
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".parquet": read_parquet,
}
COMPRESSED = (".gz", ".zst")


def reader_for(path: Path) -> Reader:
    """The reader of a file, by its name.

    Raises:
        DataError: no reader knows the suffix.
    """
    name = path.name.lower()
    suffixes = Path(name.removesuffix(".gz").removesuffix(".zst")).suffix
    reader = READERS.get(suffixes)
    if reader is None or (reader is read_parquet and name.endswith(COMPRESSED)):
        raise DataError(
            f"{path}: no reader for this kind of file; known: {', '.join(READERS)}, and these with .gz or .zst"
        )
    return reader


def raw_files(source: Path) -> tuple[list[Path], list[Path]]:
    """The files of a corpus in order (by path), and those beside them that no reader knows; hidden files are neither.

    Raises:
        DataError: the path does not exist or holds no file of a known kind.
    """
    if source.is_file():
        reader_for(source)
        return [source], []
    if not source.is_dir():
        raise DataError(
            f"{source}: does not exist; put text there (`headstart data` makes the built-in data) or name another path"
        )
    found: list[Path] = []
    others: list[Path] = []
    for path in sorted(source.rglob("*"), key=lambda path: path.relative_to(source).parts):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(source).parts):
            try:
                reader_for(path)
                found.append(path)
            except DataError:
                others.append(path)
    if not found:
        hint = f"; {others[0].name} and {len(others) - 1} other(s) are of no known kind" if others else ""
        raise DataError(f"{source}: holds no {', '.join(READERS)} file (plain, .gz or .zst){hint}")
    return found, others


def read_texts(path: Path, source: CorpusSource, reading: Reading) -> Iterator[tuple[int, str, str | None]]:
    """(line, text, id) of every document of one raw file; a null text is empty, an id that is not named is null.

    Raises:
        DataError: whatever the reader finds wrong, with file and line.
    """
    identified = source.id is not None and reader_for(path) is not read_text
    for number, (text, *rest) in _values(path, [source.text], source.id, reading):
        yield number, text or "", rest[0] if identified else None


def read_pairs(path: Path, source: ParallelSource, reading: Reading) -> Iterator[tuple[int, str, str, str | None]]:
    """(line, source, target, id) of every pair of one raw file; a null text is empty, an id that is not named is null.

    Raises:
        DataError: the file is plain text; whatever the reader finds wrong, with file and line.
    """
    if reader_for(path) is read_text:
        raise DataError(f"{path}: a text file has no pairs; use jsonl, csv, tsv or parquet")
    for number, (text, target, *rest) in _values(path, [source.source, source.target], source.id, reading):
        yield number, text or "", target or "", rest[0] if rest else None


def _values(path: Path, columns: list[str], row_id: str | None, reading: Reading) -> Iterator[Row]:
    return reader_for(path)(path, columns if row_id is None else [*columns, row_id], True, reading)


def read_labelled(path: Path, source: TaskSource) -> Iterator[LabelledRow]:
    """The examples of one split of a task, in order.

    Raises:
        DataError: the file is missing, empty or damaged, lacks a column, or a row has no text or no label.
    """
    columns = [source.text, source.label, *(name for name in (source.slice, source.id) if name is not None)]
    if not path.is_file():
        raise DataError(f"{path}: does not exist; the splits are named under data.tasks in params.yaml")
    reader = reader_for(path)
    if reader is read_text:
        raise DataError(f"{path}: a text file has no labels; use jsonl, csv, tsv or parquet")
    reading = Reading()
    count = 0
    for number, values in reader(path, columns, source.header, reading):
        rest = iter(values[2:])
        text, label = values[0], values[1]
        if text is None or not text.strip():
            raise DataError(f"{path}, line {number}: the text ({source.text!r}) is empty; remove the row or fill it in")
        if label is None or not label.strip():
            raise DataError(
                f"{path}, line {number}: the label ({source.label!r}) is missing; remove the row or label it"
            )
        part = next(rest) if source.slice is not None else None
        row_id = next(rest) if source.id is not None else None
        count += 1
        yield LabelledRow(text=text, label=label.strip(), slice=part, id=row_id, line=number)
    if not count:
        raise DataError(f"{path}: holds no rows")
