"""Tables as streams of complete rows: every column, unchanged, for programs that add columns to a file.

The readers of `components.data.formats.tables` extract text for training; here, rows are written again, so names,
order, types and line breaks are preserved, rows may have any length, and invalid UTF-8 is an error. In csv and tsv, the
apostrophe before a text that looks like a formula is removed (`components.data.formats.spreadsheet`).

A bad row is an error, or with `rejected` a call of that function, and the next row follows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.errors import DataError
from components.data.formats.spreadsheet import restored
from components.data.formats.tables import DIALECTS, parse_object, refuse_ambiguous

Row = dict[str, Any]
#: Called with the error of a bad row, whose message begins with the location, and the row as far as it is known.
Rejected = Callable[[DataError, Any], None]
_READ_ERRORS = (UnicodeDecodeError, csv.Error, OSError)
#: Characters of a line that cannot be parsed which are passed on.
SHOWN = 2000
# Rows of a Parquet file that are decoded at once.
_PARQUET_ROWS = 512


@dataclass(frozen=True)
class Rows:
    """An open file.

    Attributes:
        names: its columns; for jsonl, the columns of the first row.
        fixed: whether every row has these columns.
        schema: types of the columns; None if the format has none.
        rows: (location for messages, row) in file order.
    """

    names: list[str]
    fixed: bool
    schema: pa.Schema | None
    rows: Iterator[tuple[str, Row]]


@dataclass(frozen=True)
class Span:
    """A part of a file that begins and ends at borders of rows.

    Attributes:
        start, end: bytes of a text file, without the header; rows of a parquet file.
        line: number of lines before `start`.
        rows: number of rows; of a text file, number of rows or blank lines.
        names: columns of the file; for jsonl, the columns of its first row.
    """

    start: int
    end: int
    line: int
    rows: int
    names: tuple[str, ...]


def open_rows(path: Path, stack: ExitStack, *, rejected: Rejected | None = None, span: Span | None = None) -> Rows:
    """Open a csv, tsv, jsonl or parquet file, by its suffix; `stack` closes it.

    Args:
        rejected: receives bad rows; None: they are raised.

    Raises:
        DataError: the file is damaged or not UTF-8, a row does not fit the header, or a column name is ambiguous; also
            raised by the iterator, with the line.
    """
    return READERS[path.suffix](path, stack, rejected or _raise, span)


def _raise(error: DataError, row: Any) -> None:
    raise error


def _open_delimited(path: Path, stack: ExitStack, rejected: Rejected, span: Span | None) -> Rows:
    csv.field_size_limit(2**31 - 1)
    # Invalid bytes become surrogates, so that the row that contains them is known.
    text: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "surrogateescape", "newline": ""}
    if span is None:
        file = stack.enter_context(path.open(**text))
    else:
        part = stack.enter_context(_Part(path, span))
        file = stack.enter_context(io.TextIOWrapper(io.BufferedReader(part), **text | {"encoding": "utf-8"}))
    before = span.line if span else 0
    reader = csv.DictReader(file, span.names if span else None, **DIALECTS[path.suffix])
    try:
        names = list(span.names if span else map(restored, reader.fieldnames or []))
        reader.fieldnames = names
    except _READ_ERRORS as error:
        raise _unreadable(f"{path}, line 1", error) from error
    if any(map(_invalid, names)):
        raise _not_utf8(f"{path}, line 1")
    refuse_ambiguous(path, names, names)

    def rows() -> Iterator[tuple[str, Row]]:
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                rejected(_unreadable(f"{path}, line {before + reader.line_num}", error), None)
                continue
            except OSError as error:
                raise _unreadable(f"{path}, line {before + reader.line_num + 1}", error) from error
            where = f"{path}, line {before + reader.line_num}"
            if None in row:
                rejected(DataError(f"{where}: has more fields than the header's {len(names)}"), row.pop(None) and row)
            elif any(map(_invalid, row.values())):
                rejected(_not_utf8(where), {name: _replaced(value) for name, value in row.items()})
            else:
                yield where, {name: value and restored(value) for name, value in row.items()}

    return Rows(names, fixed=True, schema=None, rows=rows())


def _invalid(value: str | None) -> bool:
    return value is not None and not value.isascii() and any("\udc80" <= character <= "\udcff" for character in value)


def _replaced(value: str | None) -> str | None:
    return value and value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class _Part(io.RawIOBase):
    """The bytes of a part of a file."""

    def __init__(self, path: Path, span: Span) -> None:
        super().__init__()
        self._file = path.open("rb", buffering=0)
        self._file.seek(span.start)
        self._left = span.end - span.start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(memoryview(buffer)[: self._left]) or 0
        self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_jsonl(path: Path, stack: ExitStack, rejected: Rejected, span: Span | None) -> Rows:
    file: Any = stack.enter_context(io.BufferedReader(_Part(path, span)) if span else path.open("rb"))
    before = span.line if span else 0
    refused = 0

    def rows() -> Iterator[tuple[str, Row]]:
        nonlocal refused
        number = before
        try:
            for number, line in enumerate(file, start=before + 1):
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                try:
                    row, _ = parse_object(line.decode("utf-8-sig" if number == 1 else "utf-8"), where)
                except UnicodeDecodeError:
                    refused += 1
                    rejected(_not_utf8(where), line.decode("utf-8", "replace")[:SHOWN])
                except DataError as error:
                    refused += 1
                    rejected(error, line.decode("utf-8", "replace")[:SHOWN])
                else:
                    yield where, row
        except OSError as error:
            raise _unreadable(f"{path}, line {number + 1}", error) from error

    everything = rows()
    if span is not None:
        return Rows(list(span.names), fixed=False, schema=None, rows=everything)
    first = next(everything, None)
    if first is None:
        raise DataError(f"{path}: " + ("no line can be read as a row" if refused else "is empty"))
    return Rows(list(first[1]), fixed=False, schema=None, rows=chain([first], everything))


def _open_parquet(path: Path, stack: ExitStack, rejected: Rejected, span: Span | None) -> Rows:
    try:
        file = stack.enter_context(pq.ParquetFile(path))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a complete parquet file ({error})") from error
    names = file.schema_arrow.names
    refuse_ambiguous(path, names, names)

    def rows() -> Iterator[tuple[str, Row]]:
        begin, end = (span.start, span.end) if span else (0, file.metadata.num_rows)
        groups, number = _row_groups(file, begin, end)
        try:
            for batch in file.iter_batches(_PARQUET_ROWS, row_groups=groups):
                skipped = max(0, begin - number)
                wanted = batch.slice(skipped, max(0, end - number - skipped)).to_pylist()
                for index, row in enumerate(wanted, start=number + skipped + 1):
                    yield f"{path}, row {index}", row
                number += len(batch)
                if number >= end:
                    return
        except UnicodeDecodeError as error:
            raise _unreadable(f"{path}, after row {number}", error) from error
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{path}: damaged ({error})") from error

    return Rows(names, fixed=True, schema=file.schema_arrow, rows=rows())


def _row_groups(file: pq.ParquetFile, begin: int, end: int) -> tuple[list[int], int]:
    """The row groups with rows from `begin` to `end`, and the index of the first row of the first of them."""
    groups: list[int] = []
    first = start = 0
    for group in range(file.metadata.num_row_groups):
        stop = start + file.metadata.row_group(group).num_rows
        if stop > begin and start < end:
            first = first if groups else start
            groups.append(group)
        start = stop
    return groups, first


#: Suffix -> reader.
READERS: dict[str, Callable[[Path, ExitStack, Rejected, Span | None], Rows]] = {
    ".csv": _open_delimited,
    ".tsv": _open_delimited,
    ".jsonl": _open_jsonl,
    ".parquet": _open_parquet,
}


def _not_utf8(where: str) -> DataError:
    return DataError(f"{where}: not UTF-8; convert the file (iconv -f LATIN1 -t UTF-8)")


def _unreadable(where: str, error: Exception) -> DataError:
    if isinstance(error, UnicodeDecodeError):
        return _not_utf8(where)
    return DataError(f"{where}: cannot be read ({error})")
