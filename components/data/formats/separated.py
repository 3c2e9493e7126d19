"""Delimited text (csv, tsv) as rows: the module csv in the dialect of the file. A row that is not well formed is
rejected, and reading goes on in its next line. The apostrophe before a text that looks like a formula is removed."""

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

from components.core.errors import DataError
from components.data.formats.delimited import Dialect, different_names, restored, strict_rows
from components.data.formats.dialect import detect_dialect
from components.data.formats.lines import LINE_BYTES, text_blocks
from components.data.formats.tables import SHOWN, Numbered, RowError, Rows
from components.settings.formats import suffix_of

#: Rows from which the number of columns is taken.
_SEEN: Final = 200
#: Maximum number of columns.
MOST_COLUMNS: Final = 10_000
#: A carriage return that ends no line, which readers take for the end of a row, is two characters meanwhile, and so is
#: the first of them where the text has it.
_LONE: Final = re.compile(r"\r(?!\n)")
_PLACE, _RETURN, _ITSELF = "\ue00d", "\ue00d1", "\ue00d0"


def read_delimited(file: Rows) -> Numbered:
    """The rows. One with further fields, all of them empty, is cut; one with another number of fields than the header
    is bad; one that repeats the header is left out. A column without a name is called `column N`."""
    layout = file.layout
    blocks = text_blocks(file.path, file.reading, encoding=layout.encoding, limit=LINE_BYTES)
    first = next(blocks, b"")
    dialect = detect_dialect(
        first.decode(errors="ignore").replace("\r\n", "\n"),
        tabs=suffix_of(file.path.name) == ".tsv",
        delimiter=layout.delimiter,
        quote=None if layout.quotes is None else '"' * layout.quotes,
        header=layout.header,
    )
    head = list(_lines(iter([first]), dialect))
    header, at, above = _header(head, dialect)
    width = len(header)
    file.names_at, file.described, file.header = file.at(at + 1), dialect.described(), dialect.header
    if width > MOST_COLUMNS:
        what = f"{width:,} columns, the maximum is {MOST_COLUMNS:,}, read with {file.described}"
        do = "name the delimiter (--delimiter), or save the file as jsonl or parquet"
        raise DataError(what, where=file.names_at, do=do)
    file.names = [_cell(name) for name in different_names(header)]
    times = Counter(name.strip() for name in header)
    file.ambiguous = frozenset(name for name, count in times.items() if name and count > 1)
    file.hint = "; if it has no header line, set header: false" * dialect.header
    wanted = [(name, index) for index, name in enumerate(file.names) if file.wants(name)]
    for index, fields, text in strict_rows(chain(head[above:], _lines(blocks, dialect)), dialect, blank=True):
        number = above + index + 1
        if isinstance(fields, list):
            if len(fields) > width and not any(cell.strip() for cell in fields[width:]):
                fields = fields[:width]
            if dialect.header and fields == header:
                file.reading.skipped["rows_repeat_header"] += 1
                continue
            if len(fields) == width:
                yield number, {name: _cell(fields[at]) for name, at in wanted}
                continue
            fields = f"{len(fields)} field(s) instead of {width}"
        if text.strip():
            file.rejected(RowError(f"{file.path}, line {number}: {fields}", number), _plain(text.rstrip("\n"))[:SHOWN])


def _lines(blocks: Iterator[bytes], dialect: Dialect) -> Iterator[str]:
    for text in dialect.doubled(block.decode().replace(_PLACE, _ITSELF) for block in blocks):
        yield from io.StringIO(_LONE.sub(_RETURN, text) if "\r" in text else text, newline="\n")


def _plain(text: str) -> str:
    return text.replace(_RETURN, "\r").replace(_ITSELF, _PLACE) if _PLACE in text else text


def _cell(cell: str) -> str:
    return restored(_plain(cell))


def _header(lines: Sequence[str], dialect: Dialect) -> tuple[list[str], int, int]:
    """The names of the columns as they are written, without a header their numbers; and the number of lines above the
    header and above the first row."""
    head = list(islice(strict_rows(lines[dialect.skipped :], dialect), _SEEN + 1))
    widths = Counter(len(row) for _, row, _ in head if isinstance(row, list))
    width = widths.most_common(1)[0][0] if widths else 1
    if not (dialect.header and head and isinstance(header := head[0][1], list)):
        return [str(number) for number in range(width)], dialect.skipped, dialect.skipped
    if width == len(header) + 1:
        # R writes no name above the names of rows, which differ.
        names = [row[0].strip() for _, row, _ in head[1:] if isinstance(row, list)]
        are_names = len(set(names)) == len(names) > 1 and not any(" " in name for name in names)
        header = [""] * are_names + header
    above = dialect.skipped + head[1][0] if len(head) > 1 else len(lines)
    return header, dialect.skipped + head[0][0], above
