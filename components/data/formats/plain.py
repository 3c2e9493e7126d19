"""Formats without columns: lines that begin with a label, and parallel files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from components.core.errors import DataError, nearest
from components.data.formats.lines import Reading, lines
from components.data.formats.tables import Layout, Row

LABEL_FIRST = ("text", "label")


def read_label_first(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """One example per line: a label, white space, the text (TREC). Empty lines are skipped.

    The columns are `text` and `label`.

    Raises:
        DataError: a column has another name, or the file cannot be read.
    """
    for name in columns:
        if name not in LABEL_FIRST:
            raise DataError(f"{path}: no column {name!r}; a line has a label and a text only")
    for number, line in lines(path, reading, encoding=layout.encoding):
        if line.strip():
            label, *rest = line.split(maxsplit=1)
            values = {"label": label, "text": rest[0].rstrip() if rest else ""}
            yield number, tuple(values[name] for name in columns)


def read_parallel(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """Rows of parallel files in the folder `path`: line n of each file is a value of row n (SNIPS: seq.in, seq.out).

    The columns are the names of the files. Trailing lines that are empty in all files are not rows.

    Raises:
        DataError: the folder or a file does not exist, or the files have different numbers of lines.
    """
    if not path.is_dir():
        raise DataError(f"{path}: is not a folder; expected one with the files {', '.join(columns)}")
    names = sorted(file.name for file in path.iterdir())
    for name in columns:
        if name not in names:
            raise DataError(f"{path}: has no file {name!r}{nearest(name, names)}; the columns are names of files")
    waiting: list[Row] = []
    streams = [lines(path / name, reading, encoding=layout.encoding) for name in columns]
    for row in zip_longest(*streams):
        number = next(entry[0] for entry in row if entry is not None)
        if any(entry is None for entry in row):
            short = next(name for name, entry in zip(columns, row, strict=True) if entry is None)
            long = next(name for name, entry in zip(columns, row, strict=True) if entry is not None)
            raise DataError(
                f"{path / short}: ends after line {number - 1}, but {long} continues; parallel files need the same "
                "number of lines"
            )
        waiting.append((number, tuple(text for _, text in row)))
        if any(text.strip() for _, text in row):
            yield from waiting
            waiting.clear()
