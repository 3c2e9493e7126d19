"""Lines without columns: a label before each text, and files that belong together line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from components.errors import DataError, nearest
from components.formats.lines import Reading, lines
from components.formats.tables import Layout, Row

LABEL_FIRST = ("text", "label")


def read_label_first(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """One example a line, the label up to the first white space, the text behind it (TREC); empty lines are skipped.

    The columns are `text` and `label`.

    Raises:
        DataError: a column of another name; whatever is wrong with the file.
    """
    for name in columns:
        if name not in LABEL_FIRST:
            raise DataError(f"{path}: no column {name!r}; a line holds a label and a text, nothing else")
    for number, line in lines(path, reading, encoding=layout.encoding):
        if line.strip():
            label, *rest = line.split(maxsplit=1)
            values = {"label": label, "text": rest[0].rstrip() if rest else ""}
            yield number, tuple(values[name] for name in columns)


def read_parallel(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """The lines of several files of the folder `path`, side by side (SNIPS: seq.in, seq.out, label).

    The columns are the names of the files. Empty lines at the end of all of them are no rows.

    Raises:
        DataError: no such folder or file; files of different lengths.
    """
    if not path.is_dir():
        raise DataError(f"{path}: is no folder; it should hold the files {', '.join(columns)}")
    names = sorted(file.name for file in path.iterdir())
    for name in columns:
        if name not in names:
            raise DataError(f"{path}: holds no file {name!r}{nearest(name, names)}; its columns are files")
    waiting: list[Row] = []
    streams = [lines(path / name, reading, encoding=layout.encoding) for name in columns]
    for row in zip_longest(*streams):
        number = next(entry[0] for entry in row if entry is not None)
        if any(entry is None for entry in row):
            short = next(name for name, entry in zip(columns, row, strict=True) if entry is None)
            long = next(name for name, entry in zip(columns, row, strict=True) if entry is not None)
            raise DataError(
                f"{path / short}: ends after line {number - 1}, {long} goes on; the lines of both belong together"
            )
        waiting.append((number, tuple(text for _, text in row)))
        if any(text.strip() for _, text in row):
            yield from waiting
            waiting.clear()
