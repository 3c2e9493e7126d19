"""Tables as streams of complete rows: every column, unchanged, for programs that add columns to a file.

The readers of `components.formats.tables` extract text for training; here, rows are written again, so names, order,
types and line breaks are preserved, rows may have any length, and invalid UTF-8 is an error.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from components.errors import DataError
from components.formats.tables import DIALECTS, parse_object, refuse_ambiguous

Row = dict[str, Any]
_READ_ERRORS = (UnicodeDecodeError, csv.Error, OSError)
# Rows of a Parquet file that are decoded at once.
_PARQUET_ROWS = 512


@dataclass(frozen=True)
class Rows:
    """An open file.

    Attributes:
        names: its columns; for jsonl, those of the first row.
        fixed: whether every row has these columns.
        schema: types of the columns; None if the format has none.
        rows: (location for messages, row) in file order.
    """

    names: list[str]
    fixed: bool
    schema: pa.Schema | None
    rows: Iterator[tuple[str, Row]]


def open_rows(path: Path, stack: ExitStack) -> Rows:
    """Open a csv, tsv, jsonl or parquet file, by its suffix; `stack` closes it.

    Raises:
        DataError: the file is damaged or not UTF-8, a row does not fit the header, or a column name is ambiguous; also
            raised by the iterator, with the line.
    """
    return READERS[path.suffix](path, stack)


def _open_delimited(path: Path, stack: ExitStack) -> Rows:
    csv.field_size_limit(2**31 - 1)
    file = stack.enter_context(path.open(encoding="utf-8-sig", newline=""))
    reader = csv.DictReader(file, **DIALECTS[path.suffix])
    try:
        names = list(reader.fieldnames or [])
    except _READ_ERRORS as error:
        raise _unreadable(f"{path}, line 1", error) from error
    refuse_ambiguous(path, names, names)

    def rows() -> Iterator[tuple[str, Row]]:
        try:
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                if None in row:
                    raise DataError(f"{where}: has more fields than the header's {len(names)}")
                yield where, row
        except _READ_ERRORS as error:
            raise _unreadable(f"{path}, line {reader.line_num + 1}", error) from error

    return Rows(names, fixed=True, schema=None, rows=rows())


def _open_jsonl(path: Path, stack: ExitStack) -> Rows:
    file = stack.enter_context(path.open("rb"))

    def rows() -> Iterator[tuple[str, Row]]:
        number = 0
        try:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    where = f"{path}, line {number}"
                    row, _ = parse_object(line.decode("utf-8-sig" if number == 1 else "utf-8"), where)
                    yield where, row
        except UnicodeDecodeError as error:
            raise _unreadable(f"{path}, line {number}", error) from error
        except OSError as error:
            raise _unreadable(f"{path}, line {number + 1}", error) from error

    everything = rows()
    first = next(everything, None)
    if first is None:
        raise DataError(f"{path}: is empty")
    return Rows(list(first[1]), fixed=False, schema=None, rows=chain([first], everything))


def _open_parquet(path: Path, stack: ExitStack) -> Rows:
    try:
        file = stack.enter_context(pq.ParquetFile(path))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a complete parquet file ({error})") from error
    names = file.schema_arrow.names
    refuse_ambiguous(path, names, names)

    def rows() -> Iterator[tuple[str, Row]]:
        number = 0
        try:
            for batch in file.iter_batches(_PARQUET_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
        except UnicodeDecodeError as error:
            raise _unreadable(f"{path}, after row {number}", error) from error
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{path}: damaged ({error})") from error

    return Rows(names, fixed=True, schema=file.schema_arrow, rows=rows())


#: Suffix -> reader.
READERS: dict[str, Callable[[Path, ExitStack], Rows]] = {
    ".csv": _open_delimited,
    ".tsv": _open_delimited,
    ".jsonl": _open_jsonl,
    ".parquet": _open_parquet,
}


def _unreadable(where: str, error: Exception) -> DataError:
    if isinstance(error, UnicodeDecodeError):
        return DataError(f"{where}: not UTF-8; convert the file (iconv -f LATIN1 -t UTF-8)")
    return DataError(f"{where}: cannot be read ({error})")
