"""The dialect of a delimited text file: its delimiter, quotes and header, given or guessed; usual names of columns.

The delimiter and the quotes are guessed by clevercsv (van den Burg et al. 2019, "Wrangling messy CSV files by detecting
row and type patterns"). Whether quotes are quotes is verified by the number of rows of the usual width.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from components.data.formats.delimited import Dialect, strict_rows

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
    top, *rest = [row for row in islice(_rows(sample, result), ROWS + 1) if row is not None] or [[]]
    if header is None and (above := rows_above_header([top, *rest])):
        # Titles are lines above the first row.
        lines = dialect_lines(sample, result)
        starts = [index for index, row, _ in strict_rows(lines, result) if isinstance(row, list)]
        return replace(result, header=True, skipped=skipped + starts[above])
    header = is_header(top, rest) if header is None else header
    return replace(result, header=header, skipped=skipped)


def rows_above_header(rows: Sequence[Sequence[str]]) -> int:
    """Number of rows of titles and notes above the header: they have empty cells or another number of them. 0 if none
    of the first rows is a header."""
    width = max(Counter(map(len, rows[1:])).items(), key=lambda entry: entry[1], default=(0, 0))[0]
    used = {column for row in rows[_TITLES:] or rows for column, cell in enumerate(row) if cell.strip()}
    for number, row in enumerate(rows[:_TITLES]):
        if len(row) == width and all(cell.strip() or column not in used for column, cell in enumerate(row)):
            return number if number and width > 1 and is_header(row, rows[number + 1 :]) else 0
    return 0


def _rows(text: str, dialect: Dialect) -> Iterator[list[str] | None]:
    """The rows; None for one that is not well formed."""
    lines = dialect_lines(text, dialect)
    return (row if isinstance(row, list) else None for _, row, _ in strict_rows(lines, dialect))


def dialect_lines(text: str, dialect: Dialect) -> list[str]:
    """The lines of a text, with quotes doubled and lone carriage returns as spaces."""
    text = "".join(dialect.doubled([text.replace("\r\n", "\n").replace("\r", " ")]))
    return [f"{line}\n" for line in text.removesuffix("\n").split("\n")]


def _splits_all(text: str, delimiter: str, *, whole: bool) -> bool:
    """Whether all rows have the same number of fields, more than one; the last row may be cut."""
    if delimiter not in text:
        return False
    rows = list(_rows(text, Dialect(delimiter)))
    widths = {row and len(row) for row in (rows if whole else rows[:-1])}
    return len(rows) > 1 and len(widths) == 1 and not widths & {None, 0, 1}


def _covered(text: str, dialect: Dialect) -> tuple[int, bool]:
    """The number of lines in rows of the most frequent number of fields, and of lines in which quotes enclose a
    field, 0 if the rows have one field, unless quotes enclose delimiters in it; and whether no line is lost."""
    lines, begin, width = dialect_lines(text, dialect), 0, 0
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
