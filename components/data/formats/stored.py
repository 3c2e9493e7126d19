"""A table as a Parquet file of rows in parts, which several processes read.

A part is a row group. Rows of other formats than Parquet are stored as JSON, with their places.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.artifacts import partial_path
from components.data.batches import batches
from components.data.formats.parquets import readable
from components.data.formats.rows import open_rows
from components.data.formats.tables import Rejected, Rows

_SCHEMA: Final = pa.schema([("place", pa.string()), ("row", pa.string())])
_NAMES: Final = b"headstart.names"


@dataclass(frozen=True)
class Span:
    """A part of a table: its rows from `start` to `end`."""

    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start


def store(
    source: Path, path: Path, *, part_bytes: int, part_rows: int, rejected: Rejected | None, form: str = ""
) -> list[Span]:
    """Write the rows of a file, and return its parts in order. A Parquet file is not copied.

    Args:
        source: of any format of `open_rows`.
        form: as of `open_rows`.
        part_bytes, part_rows: sizes of a part.
        rejected: receives bad rows; None: they are raised.

    Raises:
        DataError: as `open_rows`.
    """
    table = open_rows(source, rejected=rejected, form=form)
    if table.schema is not None:
        total = pq.read_metadata(source).num_rows
        return [Span(start, min(start + part_rows, total)) for start in range(0, total, part_rows)]
    names = json.dumps([table.names, table.fixed, sorted(table.ambiguous)]).encode()
    spans: list[Span] = []
    with partial_path(path) as partial:
        with pq.ParquetWriter(partial, _SCHEMA.with_metadata({_NAMES: names}), compression="zstd") as writer:
            entries = ((place, json.dumps(row, ensure_ascii=False, default=str)) for place, row in table.rows)
            for part in batches(entries, size=lambda entry: len(entry[1]), most=part_bytes, count=part_rows):
                places, rows = zip(*part, strict=True)
                writer.write_table(pa.table([places, rows], schema=writer.schema), row_group_size=len(rows))
                start = spans[-1].end if spans else 0
                spans.append(Span(start, start + len(rows)))
        partial.replace(path)
    return spans


def open_stored(path: Path, span: Span) -> Rows:
    """A part of a table that `store` has written, or of another Parquet file.

    Raises:
        DataError: the file is damaged.
    """
    with readable(path):
        schema = pq.read_schema(path)
    numbered = _of_span(path, span)
    if (given := (schema.metadata or {}).get(_NAMES)) is None:
        return Rows(path, names=schema.names, numbered=numbered, schema=schema, unit="row")
    names, fixed, ambiguous = json.loads(given)
    stored = ((entry["place"], json.loads(entry["row"])) for _, entry in numbered)
    return Rows(path, names=names, numbered=stored, fixed=fixed, ambiguous=frozenset(ambiguous), unit="")


def _of_span(path: Path, span: Span) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number from 1, row) of a span."""
    with readable(path), pq.ParquetFile(path) as file:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        starts = [0, *accumulate(sizes)]
        groups = [at for at, end in enumerate(starts[1:]) if end > span.start and starts[at] < span.end]
        number = starts[groups[0]] if groups else 0
        for batch in file.iter_batches(512, row_groups=groups):
            first = max(number, span.start)
            yield from enumerate(batch.slice(first - number, max(0, span.end - first)).to_pylist(), first + 1)
            number += len(batch)
            if number >= span.end:
                return
