"""Rows of delimited text, block by block: cut by numpy where a block is well formed, else row by row.

A block is well formed if each quote opens a field or closes one. Elsewhere, as after a quote that is not closed, the
module csv reads row by row, a row that is not well formed is reported, and reading goes on in its next line.

Shapes: R rows of a block, C columns.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Maximum number of lines of a row; more are a quote that is not closed.
MOST_LINES: Final = 5_000
#: Maximum size of a row.
MOST_BYTES: Final = 8_000_000
#: Rows from which the number of columns is taken.
_SEEN: Final = 200
#: A carriage return that ends no line, which readers take for the end of a row; and what stands for it meanwhile.
_LONE: Final = re.compile(rb"\r(?!\n)")
_PLACE: Final = "\ue00d".encode()


@dataclass(frozen=True)
class Dialect:
    """How the rows of a delimited file are written.

    Attributes:
        delimiter: between the fields of a row.
        quote: character around fields that may contain delimiters and line breaks; empty: there is none.
        escape: character before a quote in a quoted field; empty: the quote is doubled.
        header: whether the first row names the columns.
        skipped: lines before the first row, such as `sep=;` of Excel.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    header: bool = True
    skipped: int = 0

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of readers of the module csv, for text that `doubled` has changed."""
        quoting = csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE
        return {"delimiter": self.delimiter, "quotechar": self.quote or None, "quoting": quoting, "strict": True}

    def doubled(self, text: str) -> str:
        """Text in which escaped quotes are doubled."""
        if not self.escape or self.escape not in text:
            return text
        escape, quote = re.escape(self.escape), self.quote
        pattern = f"{escape}([{escape}{re.escape(quote)}])"
        return re.sub(pattern, lambda pair: quote * 2 if pair[1] == quote else self.escape, text)

    def described(self) -> str:
        names = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
        quotes = f"fields quoted with {self.quote}" if self.quote else "no quotes"
        escaped = f" (escaped by {self.escape})" if self.escape else ""
        above = f"; {self.skipped} line(s) above the first row are left out" if self.skipped else ""
        return f"delimiter {names.get(self.delimiter, repr(self.delimiter))}, {quotes}{escaped}{above}"


@dataclass(frozen=True)
class Bad:
    """A row that cannot be read: where it begins, what is wrong, and its first line."""

    line: int
    reason: str
    text: str


@dataclass(frozen=True)
class Block:
    """Rows of a file: C lists of R values, R numbers of their first lines, and the bad rows between them."""

    columns: list[list[str]]
    lines: list[int]
    bad: list[Bad]


def strict_rows(
    lines: Sequence[str], dialect: Dialect, *, blank: bool = False
) -> Iterator[tuple[int, list[str] | str]]:
    """(index of its first line, fields) of each row; of one that is not well formed, what is wrong, and the next row
    begins in its next line.

    Args:
        lines: of the text with their line ends, after `Dialect.doubled`.
        blank: whether a row all of whose fields are blank is one; a line without characters is none.
    """
    csv.field_size_limit(2**31 - 1)
    position = begin = 0

    def feed() -> Iterator[str]:
        nonlocal position
        while position < len(lines):
            if position - begin > MOST_LINES:
                raise csv.Error("a quote is not closed")
            position += 1
            yield lines[position - 1]

    reader = csv.reader(feed(), **dialect.arguments)
    while position < len(lines):
        begin = position
        try:
            row = next(reader)
        except csv.Error as error:
            reason = "a quote is not closed" if "unexpected end" in str(error) else str(error)
            reason = "text follows a closing quote, or a quote is not closed" if "expected after" in reason else reason
            yield begin, reason
            position = begin + 1
            reader = csv.reader(feed(), **dialect.arguments)
            continue
        if row if blank else any(cell.strip() for cell in row):
            yield begin, row


@dataclass(frozen=True)
class Delimited:
    """An open file.

    Attributes:
        header: its names as they are written, without a header the numbers of the columns; `names` have no white space
            at their ends.
        names: C different names; a column without a name is called `column N`.
        text: the rows, whole lines of UTF-8, which are read when they are needed.
        line: number of lines before the text.
    """

    dialect: Dialect
    header: list[str]
    names: list[str]
    text: Iterator[bytes]
    line: int
    reading: Counter[str]

    @property
    def ambiguous(self) -> set[str]:
        names = [name.strip() for name in self.header]
        return {name for name in names if name and names.count(name) > 1}

    def blocks(self, columns: Sequence[int] | None = None) -> Iterator[Block]:
        """The rows as blocks of about the size of the parts of the text; a row that repeats the header is left out.

        A row with further fields, all of them empty, is cut; one with another number of fields than the header is bad.
        `columns`: indices of the columns of the blocks; None: all of them.
        """
        chosen = range(len(self.header)) if columns is None else columns
        parser = _Parser(self.dialect, self.header, chosen, self.reading)
        return parser.blocks(self.text, self.line)


def opened(text: Iterator[bytes], dialect: Dialect, reading: Counter[str]) -> Delimited:
    """The rows of UTF-8 text (whole lines), which are read when they are needed; `reading` counts repeated headers."""
    first = next(text, b"")
    lines = [f"{line}\n" for line in first.decode().split("\n")]
    begins, rows = [], []
    for begin, row in strict_rows([dialect.doubled(line) for line in lines[dialect.skipped :]], dialect):
        begins.append(begin + dialect.skipped)
        rows.append(row)
        if len(rows) > _SEEN:
            break
    widths = Counter(len(row) for row in rows if isinstance(row, list))
    width = widths.most_common(1)[0][0] if widths else 1
    line = dialect.skipped
    header = [str(number) for number in range(width)]
    if dialect.header and rows and isinstance(rows[0], list):
        header, line = rows[0], begins[1] if len(begins) > 1 else len(lines)
        if width == len(header) + 1:
            # R writes no name above the names of rows, which differ.
            names = [row[0].strip() for row in rows[1:] if isinstance(row, list)]
            are_names = len(set(names)) == len(names) > 1 and not any(" " in name for name in names)
            header = [""] * are_names + header
    data = "".join(lines[line:])[:-1].encode()
    text = chain([data] if data else [], text)
    return Delimited(dialect, header, different_names(header), text, line, reading)


def different_names(header: Sequence[str]) -> list[str]:
    """Names of columns that differ: `text`, `text (2)`; `column 3` for a column without a name."""
    names: list[str] = []
    for number, name in enumerate(header, 1):
        name, times = name.strip() or f"column {number}", 1
        while (new := name if times == 1 else f"{name} ({times})") in names:
            times += 1
        names.append(new)
    return names


@dataclass(frozen=True)
class _Parser:
    """Parses blocks of rows with the columns of a header; `chosen` are the columns of the result."""

    dialect: Dialect
    header: list[str]
    chosen: Sequence[int]
    reading: Counter[str]

    def blocks(self, text: Iterable[bytes], line: int) -> Iterator[Block]:
        carried = b""
        parts = iter(text)
        part = next(parts, None)
        while part is not None:
            following = next(parts, None)
            data = carried + part
            lone = b"\r" in data and _LONE.search(data) is not None
            if lone:
                data = _LONE.sub(_PLACE, data)
            if self.dialect.escape:
                data = self.dialect.doubled(data.decode()).encode()
            feeds = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10)
            quotes = self._quotes(data)
            if following is None and quotes is not None and len(quotes) % 2:
                quotes = None
            ends = None if quotes is None else _row_ends(feeds, quotes, len(data))
            if ends is not None and quotes is not None and (following is None or len(ends)):
                end = len(data) if following is None else int(ends[-1]) + 1
                block = self._fast(data[:end], _Places(feeds, ends, quotes), line)
            else:
                block, end = self._slow(data, line, last=following is None)
            if lone:
                returns = [[cell.replace(_PLACE.decode(), "\r") for cell in column] for column in block.columns]
                block = replace(block, columns=returns)
            yield block
            line += int(np.searchsorted(feeds, end))
            carried, part = data[end:], following

    def _quotes(self, data: bytes) -> NDArray[np.int64] | None:
        """Positions of the quotes; None if one of them neither opens nor closes a field."""
        quote, delimiter = self.dialect.quote.encode(), self.dialect.delimiter.encode()
        if len(delimiter) > 1 or len(quote) > 1:
            return None
        if not quote or quote not in data:
            return np.zeros(0, dtype=np.int64)
        array = np.frombuffer(data, dtype=np.uint8)
        quotes = np.flatnonzero(array == ord(quote))
        opening, closing = quotes[::2], quotes[1::2]
        border = np.zeros(256, dtype=bool)
        border[[ord(delimiter), ord(quote), 10]] = True
        before = border[array[opening - 1]] | (opening == 0)
        border[13] = True
        after = border[array[np.minimum(closing + 1, len(array) - 1)]] | (closing == len(array) - 1)
        return quotes if before.all() and after.all() else None

    def _fast(self, data: bytes, places: _Places, line: int) -> Block:
        """The rows of a well-formed block, cut at the delimiters outside of quotes."""
        array, width = np.frombuffer(data, dtype=np.uint8), len(self.header)
        starts, stops = places.rows(array)
        numbers = line + 1 + np.searchsorted(places.feeds, starts)
        delimiters = places.outside(np.flatnonzero(array == ord(self.dialect.delimiter)))
        first = np.searchsorted(delimiters, starts)
        good = np.searchsorted(delimiters, stops) - first == width - 1
        if not good.all():
            texts = [data[start:stop].decode() for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
            rows = [self._repaired(text, number) for text, number in zip(texts, numbers.tolist(), strict=True)]
            return self._block(rows, numbers.tolist())
        inner = delimiters[first[:, None] + np.arange(width - 1)]
        begins, ends = np.column_stack([starts, inner + 1]), np.column_stack([inner, stops])
        # Slices of text are made faster than slices of bytes are decoded.
        text = data.decode() if data.isascii() else None
        columns = [self._cells(data, text, begins[:, column], ends[:, column], places) for column in self.chosen]
        block = Block(columns, numbers.tolist(), [])
        return self._without_headers(block, data, starts, stops) if self.chosen else block

    def _cells(
        self, data: bytes, text: str | None, begins: NDArray[np.int64], ends: NDArray[np.int64], places: _Places
    ) -> list[str]:
        """The values of a column, without their quotes."""
        quotes = places.quotes
        doubled: list[int] = []
        if len(quotes):
            quoted = np.frombuffer(data, dtype=np.uint8)[np.minimum(begins, len(data) - 1)] == ord(self.dialect.quote)
            quoted &= begins < ends
            begins, ends = begins + quoted, ends - quoted
            doubled = np.flatnonzero(np.searchsorted(quotes, begins) < np.searchsorted(quotes, ends)).tolist()
        bounds = zip(begins.tolist(), ends.tolist(), strict=True)
        if text is None:
            cells = [data[begin:end].decode() for begin, end in bounds]
        else:
            cells = [text[begin:end] for begin, end in bounds]
        for row in doubled:
            cells[row] = cells[row].replace(self.dialect.quote * 2, self.dialect.quote)
        return cells

    def _without_headers(self, block: Block, data: bytes, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Block:
        """The block without rows that repeat the header."""
        # The last column is often a label, with few different values.
        name, cells = self.header[self.chosen[-1]], block.columns[-1]
        if not self.dialect.header or name not in set(cells):
            return block
        alike = [row for row, cell in enumerate(cells) if cell == name]
        texts = [data[int(starts[row]) : int(stops[row])].decode() for row in alike]
        rows = [next(csv.reader([text], **self.dialect.arguments)) for text in texts]
        repeats = {number for number, row in zip(alike, rows, strict=True) if row == self.header}
        self.reading["rows_repeat_header"] += len(repeats)
        kept = [row for row in range(len(cells)) if row not in repeats]
        columns = [[column[row] for row in kept] for column in block.columns]
        return Block(columns, [block.lines[row] for row in kept], block.bad)

    def _repaired(self, text: str, line: int) -> list[str] | Bad:
        """The row of a text, which may have another number of fields than the header."""
        fields = next(csv.reader([text], **self.dialect.arguments | {"strict": False}), [])
        return _fitted(fields, len(self.header), line, text)

    def _slow(self, data: bytes, line: int, *, last: bool) -> tuple[Block, int]:
        """The rows of a block that is not well formed, and where the following text begins."""
        lines = data.decode().split("\n")
        rest = lines.pop()
        texts = [f"{each}\n" for each in lines] + ([rest] if rest else [])
        rows: list[list[str] | Bad] = []
        numbers: list[int] = []
        end = len(texts)
        for index, fields in strict_rows(texts, self.dialect, blank=True):
            if not last and isinstance(fields, str) and "not closed" in fields and len(texts) - index <= MOST_LINES:
                # The following block may close it.
                end = index
                break
            numbers.append(line + 1 + index)
            rows.append(_fitted(fields, len(self.header), numbers[-1], texts[index]))
        size = sum(len(each.encode()) for each in texts[:end])
        return self._block(rows, numbers), size

    def _block(self, rows: Sequence[list[str] | Bad], numbers: Sequence[int]) -> Block:
        """The chosen columns of rows that do not repeat the header."""
        good: list[list[str]] = []
        lines = []
        for row, number in zip(rows, numbers, strict=True):
            if isinstance(row, Bad):
                continue
            if self.dialect.header and row == self.header:
                self.reading["rows_repeat_header"] += 1
                continue
            good.append(row)
            lines.append(number)
        bad = [row for row in rows if isinstance(row, Bad) and row.text.strip()]
        return Block([[row[column] for row in good] for column in self.chosen], lines, bad)


@dataclass(frozen=True)
class _Places:
    """Positions in a block: of its line feeds, of those that end rows, and of its quotes."""

    feeds: NDArray[np.int64]
    ends: NDArray[np.int64]
    quotes: NDArray[np.int64]

    def outside(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions outside of quotes."""
        return positions[np.searchsorted(self.quotes, positions) % 2 == 0] if len(self.quotes) else positions

    def rows(self, array: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Starts and ends of the rows without their line ends; lines without characters are no rows."""
        stops = self.ends[self.ends < len(array)]
        starts = np.concatenate([np.zeros(1, dtype=np.int64), stops + 1])
        stops = np.append(stops, len(array))
        stops = stops - ((array[stops - 1] == 13) & (stops > starts))
        filled = stops > starts
        return starts[filled], stops[filled]


def _row_ends(feeds: NDArray[np.int64], quotes: NDArray[np.int64], size: int) -> NDArray[np.int64] | None:
    """Positions of the line feeds at which rows end; None if a quote is not closed near the end of a block."""
    ends = feeds[np.searchsorted(quotes, feeds) % 2 == 0] if len(quotes) else feeds
    return ends if size - (int(ends[-1]) if len(ends) else 0) <= MOST_BYTES else None


def _fitted(fields: list[str] | str, width: int, line: int, text: str) -> list[str] | Bad:
    if isinstance(fields, str):
        return Bad(line, fields, text.rstrip("\n"))
    if len(fields) > width and not any(cell.strip() for cell in fields[width:]):
        fields = fields[:width]
    if len(fields) == width:
        return fields
    return Bad(line, f"{len(fields)} field(s) instead of {width}", text.split("\n", 1)[0])


#: White space other than the usual space, and characters without a form.
_UNSEEN: Final = r"(?:[^\S ]|[\x00-\x1f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff])"
#: The beginning of a text that a spreadsheet takes for a formula, after any apostrophes and invisible characters;
#: numbers are none. Also in full-width characters; tabs and line ends are removed before it.
_FORMULA: Final = re.compile(rf"'*(?![+-]?\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?%?\Z)(?:[\t\r\n]|{_UNSEEN}*[=+\-@＝＋－＠])")
#: The same after a semicolon, which separates cells where a comma is the decimal point; a smile (`;-)`) is none.
_AFTER_SEMICOLON: Final = re.compile(rf"(;{_UNSEEN}*)('*)(?=[=+\-@＝＋－＠][\w(\"'=+\-@])")


def escaped(value: Any) -> Any:
    """The cell of a value: what a spreadsheet would take for a formula begins with an apostrophe."""
    if not isinstance(value, str):
        return value
    value = _AFTER_SEMICOLON.sub(r"\1'\2", value)
    return f"'{value}" if _FORMULA.match(value) else value


def restored(cell: str) -> str:
    """The text of a cell that `escaped` has made."""
    cell = cell[1:] if cell.startswith("'") and _FORMULA.match(cell, 1) else cell
    return _AFTER_SEMICOLON.sub(lambda match: match[1] + match[2][1:], cell) if ";" in cell else cell


def row_writer(file: Any, **dialect: Any) -> Callable[[Iterable[Any]], None]:
    """A function that writes a row of a csv or tsv file. The module csv does not quote a carriage return, at which
    readers end a row.

    Raises:
        csv.Error: by the function: the dialect has no quotes, and a value contains the delimiter or a line break.
    """
    usual = csv.writer(file, lineterminator="\n", **dialect)
    quoted = csv.writer(file, lineterminator="\n", **dialect | {"quoting": csv.QUOTE_ALL, "quotechar": '"'})

    def write(row: Iterable[Any]) -> None:
        cells = list(row)
        returns = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        if returns and dialect.get("quoting") == csv.QUOTE_NONE:
            raise csv.Error("a carriage return needs quotes")
        (quoted if returns else usual).writerow(cells)

    return write


def csv_for_people(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A csv file for a spreadsheet, with a byte order mark, by which it is read as UTF-8."""
    out = io.StringIO()
    write = row_writer(out)
    write(map(escaped, columns))
    for row in rows:
        write(escaped(row[name]) for name in columns)
    return "\ufeff" + out.getvalue()
