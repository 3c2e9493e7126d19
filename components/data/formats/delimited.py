"""Delimited text (csv, tsv): its dialect, given or guessed; its rows by the module csv; cells that a spreadsheet does
not take for formulas; usual names of columns.

The delimiter and the quotes are guessed by clevercsv (van den Burg et al. 2019, "Wrangling messy CSV files by detecting
row and type patterns"). Whether quotes are quotes is verified by the number of rows of the usual width. A row that is
not well formed is rejected, and reading goes on in its next line.
"""

import csv
import io
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Final

from components.core.errors import DataError
from components.data.formats.lines import LINE_BYTES, text_blocks
from components.data.formats.tables import SHOWN, Numbered, RowError, Rows
from components.settings.formats import suffix_of

#: Maximum number of lines of a row; more are a quote that is not closed.
MOST_LINES: Final = 5_000
#: Maximum size of a row.
MOST_BYTES: Final = 8_000_000
#: A carriage return that ends no line, which readers take for the end of a row, is two characters meanwhile, and so is
#: the first of them where the text has it.
_LONE: Final = re.compile(r"\r(?!\n)")
_PLACE, _RETURN, _ITSELF = "\ue00d", "\ue00d1", "\ue00d0"


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
        """Arguments of readers of the module csv."""
        quoting = csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE
        signs = {"delimiter": self.delimiter, "quotechar": self.quote or None, "escapechar": self.escape or None}
        return {**signs, "quoting": quoting, "strict": True}

    def lines(self, texts: Iterable[str]) -> Iterator[str]:
        """The lines of consecutive parts of a text, of whole lines, as readers of the module csv take them: an escape
        that stands before no quote or escape, or in no quoted field, is one of the text, and a carriage return that
        ends no line ends no row."""
        if self.escape:
            texts = self._escaped(texts)
        for text in texts:
            yield from io.StringIO(_LONE.sub(_RETURN, text.replace(_PLACE, _ITSELF)), newline="\n")

    def _escaped(self, texts: Iterable[str]) -> Iterator[str]:
        """Texts in which an escape that is one of the text is doubled."""
        escape, quote = re.escape(self.escape), re.escape(self.quote)
        field = re.compile(
            rf"(?:^|(?<={re.escape(self.delimiter)}))({quote}[^{quote}{escape}]*(?:(?:{escape}.|{quote}{quote})"
            rf"[^{quote}{escape}]*)*)({quote}?)|{escape}",
            re.MULTILINE | re.DOTALL,
        )
        pair, is_open = re.compile(f"{escape}([{escape}{quote}])?"), False

        def changed(match: re.Match[str]) -> str:
            nonlocal is_open
            is_open = bool(match[1]) and not match[2]
            return pair.sub(lambda each: each[0] if each[1] else self.escape * 2, match[0])

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
        lines: of `Dialect.lines`, with their line ends.
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


#: Names of columns that hold a text, or a label; earlier names take precedence.
TEXTS: Final = (
    *("text", "sentence", "review", "utterance", "content", "body", "message", "comment", "document", "texts", "tweet"),
    *("headline", "description", "question", "note", "feedback"),
)
LABELS: Final = (
    *("label", "labels", "intent", "class", "category", "categories", "sentiment", "topic", "target", "tag"),
    "tags",
    "verdict",
)
LABELS_TOO: Final = ("gold_label", "entailment_judgment", "stars", "rating", "y", "action", "object", "type", "score")
#: Words in the names of columns whose values are groups of rows that are not independent.
GROUPS: Final = frozenset(
    (
        *("group", "customer", "client", "user", "member", "author", "speaker", "writer", "reviewer", "patient"),
        *("account", "company", "organisation", "organization", "document", "doc", "article", "page", "book", "thread"),
        *("conversation", "dialog", "dialogue", "session", "ticket", "case", "order", "product", "device", "id"),
    )
)


def words_in(name: str) -> set[str]:
    """The words of the name of a column, in lower case: `label` and `final` of `label_final` or `labelFinal`."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


#: Further names that begin a table.
OTHERS: Final = ("id", "index", "idx", "title", "headline", "name", "date", "time", "url", "user", "group", "language")
#: All of them.
USUAL: Final = frozenset((*TEXTS, *LABELS, *LABELS_TOO, *OTHERS))


#: Candidates for the delimiter. If several give all rows the same number of fields, the first is taken; the comma is
#: last, because it also occurs in texts and numbers.
DELIMITERS: Final = ("\t", ";", "|", ",")
#: Characters and rows from which a dialect is guessed.
SAMPLE: Final = 50_000
ROWS: Final = 1_000
#: Rows among which a header may be below titles.
_TITLES: Final = 6
_SEP: Final = re.compile(r"sep=(.)\r?\n")


def detect_dialect(
    text: str, *, tabs: bool = False, delimiter: str | None = None, quote: str | None = None, header: bool | None = None
) -> Dialect:
    """The dialect of a file; what is given is not guessed.

    Args:
        text: the beginning of the file, whole lines with the line end `\\n`.
        tabs: whether the name of the file says that tabs are delimiters.
        delimiter, quote, header: as of `Dialect`.
    """
    skipped = 0
    if (first := _SEP.match(text)) is not None:
        delimiter, skipped, text = delimiter or first[1], 1, text[first.end() :]
    sample = text[:SAMPLE].replace("\0", " ")
    sample = sample[: sample.rfind("\n") + 1] or sample
    regular = [choice for choice in DELIMITERS if _splits_all(sample, choice, whole=len(text) <= SAMPLE)]
    choices = [delimiter] if delimiter else regular[:1] or [",", ";", "\t", "|"]
    import clevercsv  # compiles large regular expressions

    guess = clevercsv.Sniffer().sniff(sample, delimiters=choices) if sample.strip() else None
    usual = Dialect(delimiter or ("\t" if tabs else ","), skipped=skipped)
    if guess is not None:
        escape = "\\" if guess.escapechar == "\\" and guess.quotechar else ""
        usual = Dialect(delimiter or guess.delimiter or usual.delimiter, guess.quotechar or "", escape)
    # The first of those that lose the fewest lines. Where quotes change nothing, they are quotes; where both lose a
    # line, the guess decides.
    quoted = replace(usual, quote=usual.quote or '"', escape="")
    candidates = [quoted, usual, replace(usual, quote="", escape="")]
    candidates += [replace(quoted, delimiter=each) for each in choices]
    if quote is not None:
        candidates = [replace(each, quote=quote, escape=each.escape if quote else "") for each in candidates]

    def fit(dialect: Dialect) -> tuple[int, bool, bool]:
        return (*_covered(text, dialect), dialect.quote == usual.quote or dialect.quote not in text)

    result = max(candidates, key=fit)
    rows = islice(strict_rows(result.lines([sample]), result), ROWS + 1)
    top = [(index, row) for index, row, _ in rows if isinstance(row, list)] or [(0, [])]
    header, above = header_of([row for _, row in top], header)
    # Titles are lines above the first row.
    return replace(result, header=header, skipped=skipped + (above and top[above][0]))


def header_of(rows: Sequence[Sequence[str]], header: bool | None) -> tuple[bool, int]:
    """Whether one of the first rows names the columns, and the number of rows of titles and notes above it: they have
    empty cells or another number of them. `header`: whether the first row does; None: guessed."""
    if header is not None:
        return header, 0
    above = _above_header(rows)
    return above > 0 or is_header(rows[0], rows[1:]), above


def _above_header(rows: Sequence[Sequence[str]]) -> int:
    width = max(Counter(map(len, rows[1:])).items(), key=lambda entry: entry[1], default=(0, 0))[0]
    used = {column for row in rows[_TITLES:] or rows for column, cell in enumerate(row) if cell.strip()}
    for number, row in enumerate(rows[:_TITLES]):
        if len(row) == width and all(cell.strip() or column not in used for column, cell in enumerate(row)):
            return number if number and width > 1 and is_header(row, rows[number + 1 :]) else 0
    return 0


def _splits_all(text: str, delimiter: str, *, whole: bool) -> bool:
    """Whether all rows have the same number of fields, more than one; the last row may be cut."""
    if delimiter not in text:
        return False
    dialect = Dialect(delimiter)
    widths = [len(row) * isinstance(row, list) for _, row, _ in strict_rows(dialect.lines([text]), dialect)]
    different = {*(widths if whole else widths[:-1])}
    return len(widths) > 1 and len(different) == 1 and not different & {0, 1}


def _covered(text: str, dialect: Dialect) -> tuple[int, bool]:
    """The number of lines in rows of the most frequent number of fields, and of lines in which quotes enclose a
    field, 0 if the rows have one field, unless quotes enclose delimiters in it; and whether no line is lost."""
    lines, begin, width = list(dialect.lines([text])), 0, 0
    covered: Counter[int] = Counter()
    for start, row, _ in chain(strict_rows(lines, dialect), [(len(lines), "", "")]):
        covered[width] += start - begin
        begin, width = start, len(row) if isinstance(row, list) else 0
    if covered[1] == len(lines) and any(
        dialect.quote and row.startswith(dialect.quote) and dialect.delimiter in row for row in lines
    ):
        return len(lines), True
    best = max((count for width, count in covered.items() if width > 1), default=0)
    enclosed = len(_enclosed(dialect).findall(text)) if best and dialect.quote else 0
    return best + enclosed, best == len(lines)


def _enclosed(dialect: Dialect) -> re.Pattern[str]:
    """A line that begins or ends with a field in quotes, or ends within one that has doubled quotes."""
    quote, end = re.escape(dialect.quote), re.escape(dialect.delimiter)
    inside = f"(?:[^{quote}\n]|{quote}{quote})*"
    field, begun = f"{quote}{inside}{quote}(?!{quote})", f"{quote}[^{quote}\n]+{quote}{quote}{inside}"
    return re.compile(f"^{field}(?={end})|(?<={end})(?:{field}|{begun})$", re.MULTILINE)


#: Probabilities that the name of a column has 1, 2, 3, 4, or more words.
_WORDS: Final = (0.6, 0.2, 0.1, 0.05, 0.05)
#: Most tables have a header.
_PRIOR: Final = 2.0
#: Limits of the evidence of one column and reason, as a ratio of probabilities.
_LEAST, _MOST = 1 / 30, 20.0


def is_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Whether the first row is unlike the rows below it: the product of the evidence of all columns.

    A value that occurs again, has the type of its column or as many words as the values below, is evidence for a row; a
    usual name, or a value of another type or length, for a header.
    """
    if not rest:
        return True
    evidence = math.log(_PRIOR)
    for column, name in enumerate(first):
        values = [row[column].strip() for row in rest if len(row) > column and row[column].strip()]
        if not name.strip() or not values:
            continue
        evidence += math.log(20.0 if name.strip().casefold() in USUAL else 0.7)
        ratios = _ratios(name.strip(), values)
        evidence += sum(math.log(min(max(ratio, _LEAST), _MOST)) for ratio in ratios)
    return evidence > 0


def _ratios(name: str, values: Sequence[str]) -> list[float]:
    """Evidence of the value itself, of its type (a year may be a name), and of its number of words."""
    counts = Counter(values)
    # A value that occurs in no other row is as probable as the share of values that occur once (Good 1953).
    new = (sum(count == 1 for count in counts.values()) + 1) / (len(values) + 1)
    itself = 0.02 / max(1 - new, 0.02) if name in counts else 0.98 / new
    same_type, same_length = (
        (sum(of(value) == of(name) for value in values) + 1) / (len(values) + 2) for of in (_type, _length)
    )
    return [itself, (0.1 if _type(name) != "text" else 0.9) / same_type, _WORDS[_length(name)] / same_length]


def _length(value: str) -> int:
    return min(len(value.split()), len(_WORDS)) - 1


def _type(value: str) -> str:
    if re.fullmatch(r"[+-]?[\d.,]+(?:[eE][+-]?\d+)?%?", value):
        return "number"
    if re.match(r"(?:https?://|www\.)\S+$", value):
        return "link"
    return "date" if re.match(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}", value) else "text"


#: Rows from which the number of columns is taken.
_SEEN: Final = 200
#: Maximum number of columns.
MOST_COLUMNS: Final = 10_000


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
    head = list(dialect.lines([first.decode()]))
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
    rest = chain(head[above:], dialect.lines(map(bytes.decode, blocks)))
    for index, fields, text in strict_rows(rest, dialect, blank=True):
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
