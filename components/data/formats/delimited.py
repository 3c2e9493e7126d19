"""Rows of delimited text by the module csv, and cells that a spreadsheet does not take for formulas."""

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: Maximum number of lines of a row; more are a quote that is not closed.
MOST_LINES: Final = 5_000
#: Maximum size of a row.
MOST_BYTES: Final = 8_000_000


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

    def doubled(self, texts: Iterable[str]) -> Iterator[str]:
        """Consecutive parts of a text, of whole lines, in which the escaped quotes of quoted fields are doubled."""
        if not self.escape:
            yield from texts
            return
        escape, quote = re.escape(self.escape), re.escape(self.quote)
        field = re.compile(
            rf"(?:^|(?<={re.escape(self.delimiter)})){quote}([^{quote}{escape}]*(?:(?:{escape}.|{quote}{quote})"
            rf"[^{quote}{escape}]*)*)({quote}?)",
            re.MULTILINE | re.DOTALL,
        )
        pairs, is_open = re.compile(f"{escape}([{escape}{quote}])"), False

        def changed(match: re.Match[str]) -> str:
            nonlocal is_open
            is_open = not match[2]
            within = pairs.sub(lambda pair: self.quote * 2 if pair[1] == self.quote else self.escape, match[1])
            return f"{self.quote}{within}{match[2]}"

        for text in texts:
            # A field that the part before has begun goes on.
            begun = self.quote * is_open
            yield field.sub(changed, begun + text)[len(begun) :]

    def described(self) -> str:
        names = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
        quotes = f"fields quoted with {self.quote}" if self.quote else "no quotes"
        escaped = f" (escaped by {self.escape})" if self.escape else ""
        above = f"; {self.skipped} line(s) above the first row are left out" if self.skipped else ""
        return f"delimiter {names.get(self.delimiter, repr(self.delimiter))}, {quotes}{escaped}{above}"


def strict_rows(
    lines: Iterable[str], dialect: Dialect, *, blank: bool = False
) -> Iterator[tuple[int, list[str] | str, str]]:
    """(index of its first line, fields, first line) of each row; of one that is not well formed, what is wrong instead
    of the fields, and the next row begins in its next line.

    Args:
        lines: of the text with their line ends, after `Dialect.doubled`.
        blank: whether a row all of whose fields are blank is one; a line without characters is none.
    """
    csv.field_size_limit(2**31 - 1)
    source, again = iter(lines), deque[str]()
    #: Lines of the present row.
    row: list[str] = []

    def feed() -> Iterator[str]:
        size = 0
        while (line := again.popleft() if again else next(source, None)) is not None:
            if len(row) > MOST_LINES or (row and size > MOST_BYTES):
                again.appendleft(line)
                raise csv.Error("a quote is not closed")
            size = size + len(line) if row else len(line)
            row.append(line)
            yield line

    begin, reader = 0, csv.reader(feed(), **dialect.arguments)
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            reason = "a quote is not closed" if "unexpected end" in str(error) else str(error)
            reason = "text follows a closing quote, or a quote is not closed" if "expected after" in reason else reason
            yield begin, reason, row[0]
            again.extendleft(reversed(row[1:]))
            begin, reader = begin + 1, csv.reader(feed(), **dialect.arguments)
        else:
            if fields if blank else any(cell.strip() for cell in fields):
                yield begin, fields, row[0]
            begin += len(row)
        row.clear()


def different_names(header: Sequence[str]) -> list[str]:
    """Names of columns that differ: `text`, `text (2)`; `column 3` for a column without a name."""
    names: dict[str, None] = {}
    times: Counter[str] = Counter()
    for number, name in enumerate(header, 1):
        name = new = name.strip() or f"column {number}"
        while new in names:
            times[name] += 1
            new = f"{name} ({times[name] + 1})"
        names[new] = None
    return list(names)


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
