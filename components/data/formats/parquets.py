"""Parquet files as rows, a few megabytes at a time."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.errors import DataError
from components.data.formats.class_names import class_names, named
from components.data.formats.lines import LINE_BYTES, decode, too_long
from components.data.formats.tables import Opening, Row, Rows

_ROWS = 4_096
_BYTES = 4_000_000


@contextmanager
def readable(path: Path, *, what: str = "damaged or truncated Parquet file") -> Iterator[None]:
    """Errors of pyarrow as errors of the file: `what` it is."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if not path.exists():
            raise DataError(f"{path}: does not exist") from error
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: {what} ({reason}); copy it again") from error


def read_parquet(file: Opening) -> Rows:
    """The rows; class labels of the library `datasets` by name.

    Raises:
        DataError: the file is damaged, a column is not text and `layout.nested` is not set, a text of a column that is
            asked for is longer than 8 MB, or two columns have the same name.
    """
    path, columns, reading = file.path, file.columns, file.reading
    with readable(path):
        schema = pq.read_schema(path)
    classes = class_names(schema)
    counts = Counter(schema.names)
    wanted = [name for name in counts if file.wants(name)]
    if twice := [name for name in wanted if counts[name] > 1]:
        raise DataError(f"{path}: has two columns {twice[0]!r}; rename one of them")

    def rows() -> Iterator[tuple[int, Row]]:
        number, before, size = 0, reading.consumed, path.stat().st_size
        with readable(path), pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as table:
            for batch in table.iter_batches(batch_size=_rows_at_a_time(table), columns=columns and wanted):
                batch = named(batch, classes)
                reading.text_bytes += batch.nbytes
                reading.consumed = before + size * (number + batch.num_rows) // table.metadata.num_rows
                values = [_values(file, name, batch.column(name)) for name in wanted]
                for row in zip(*values, strict=True):
                    number += 1
                    if columns and any(len(value) > LINE_BYTES for value in row if isinstance(value, str)):
                        raise too_long(path, f"row {number}")
                    yield number, dict(zip(wanted, row, strict=True))

    typed = named(pa.RecordBatch.from_pylist([], schema=schema), classes).schema
    return file.rows(schema.names, rows(), schema=typed)


def _rows_at_a_time(file: pq.ParquetFile) -> int:
    """Number of rows with about 4 MB of data, by the average row size of the largest row group."""
    groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
    longest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return min(max(_BYTES // max(longest, 1), 1), _ROWS)


def _values(file: Opening, name: str, column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind, nested = column.type, file.layout.nested
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if file.columns is not None and (binary or (pa.types.is_nested(kind) and not nested)):
        raise DataError(f"{file.path}: column {name!r} is {kind}, not text; write it as a string column")
    if not nested:
        column = column.cast(pa.string())
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError as error:
        if nested:
            raise DataError(f"{file.path}: column {name!r} has text that is not valid UTF-8; convert it") from error
        values = []
        for raw in column.cast(pa.binary()).to_pylist():
            text, bad = (None, 0) if raw is None else decode(raw)
            values.append(text)
            file.reading.bad_bytes += bad
            file.reading.bad_lines += bool(bad)
    return values
