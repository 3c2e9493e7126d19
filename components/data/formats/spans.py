"""Division of a table into parts that begin and end at borders of rows, for several processes.

The borders depend on the file and the size of the parts only.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq

from components.data.formats.rows import Span, open_rows
from components.data.formats.tables import DIALECTS

BLOCK_BYTES = 1 << 20


def spans(path: Path, *, part_bytes: int, part_rows: int) -> list[Span]:
    """The parts of a csv, tsv, jsonl or parquet file, in order.

    Args:
        part_bytes: size of a part of a text file, which ends with the row that reaches it.
        part_rows: maximum number of rows of a part; of a text file approximately, by the rows at its beginning.

    Raises:
        DataError: the file is damaged or empty; as `open_rows`.
    """
    with ExitStack() as stack:
        ignored = open_rows(path, stack, rejected=lambda error, row: None)
        names = tuple(ignored.names)
    if path.suffix == ".parquet":
        total = pq.read_metadata(path).num_rows
        starts = range(0, total, part_rows)
        return [Span(start, min(start + part_rows, total), 0, min(part_rows, total - start), names) for start in starts]
    size = _size(path, part_bytes, part_rows)
    borders = _records(path, size) if path.suffix == ".csv" else _lines(path, size)
    start, line, rows = next(borders) if path.suffix != ".jsonl" else (0, 0, 0)
    parts: list[Span] = []
    for end, last, count in borders:
        if end > start:
            parts.append(Span(start, end, line, count - rows, names))
            start, line, rows = end, last, count
    return parts


def _size(path: Path, part_bytes: int, part_rows: int) -> int:
    with path.open("rb") as file:
        block = file.read(BLOCK_BYTES)
    return max(1, min(part_bytes, part_rows * len(block) // max(1, block.count(b"\n"))))


def _lines(path: Path, size: int) -> Iterator[tuple[int, int, int]]:
    """(byte, lines before it, rows before it) of borders: after the first line, every `size` bytes, and at the end."""
    position = lines = 0
    due = 0 if path.suffix == ".tsv" else size
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            # A line of csv.reader ends at \\r, too, if no \\n follows.
            lone = path.suffix == ".tsv" and b"\r" in block
            while (cut := block.find(b"\n", max(0, due - position)) + 1) > 0 and position + cut > due:
                part, block = block[:cut], block[cut:]
                position += cut
                lines += part.count(b"\n") + (part.count(b"\r") - part.count(b"\r\n") if lone else 0)
                yield position, lines, lines
                due = position + size
            position += len(block)
            lines += block.count(b"\n") + (block.count(b"\r") - block.count(b"\r\n") if lone else 0)
    yield position, lines, lines


def _records(path: Path, size: int) -> Iterator[tuple[int, int, int]]:
    """The same for csv, whose quoted values may contain line breaks: the records are parsed."""
    with path.open("rb") as raw:
        mark = len(codecs.BOM_UTF8) if raw.read(3) == codecs.BOM_UTF8 else 0
    position, due, rows = mark, 0, -1

    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:

        def lines() -> Iterator[str]:
            nonlocal position
            for line in file:
                position += len(line) if line.isascii() else len(line.encode("utf-8", "surrogateescape"))
                yield line

        csv.field_size_limit(2**31 - 1)
        reader = csv.reader(lines(), **DIALECTS[path.suffix])
        while True:
            try:
                next(reader)
            except StopIteration:
                break
            except csv.Error:
                pass  # reported when the part is read
            rows += 1
            if position > due:
                yield position, reader.line_num, rows
                due = position + size
    yield position, reader.line_num, rows
