"""What every format is read as: rows with all columns, in the order of the file, and their places; the values of named
columns are a projection of them."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from components.core.errors import DataError, nearest
from components.data.formats.lines import Reading, lines

#: Share of the rows that may be not well formed; of a file with more, the dialect is wrong.
MOST_BAD: Final = 0.05
#: Number of them that a file of ten or more rows may have.
FEW_BAD: Final = 2
#: Characters of a line that cannot be parsed which are passed on.
SHOWN: Final = 2000

Row = dict[str, Any]
#: (number of the line or row from 1, or its name; row) in file order.
Numbered = Iterator[tuple[Any, Row]]
#: Called with the error of a bad row, whose message begins with its place, and the row as far as it is readable.
Rejected = Callable[[DataError, Any], None]


@dataclass(frozen=True)
class Layout:
    """Layout of a table; None: guessed.

    Attributes:
        header: whether the first line names the columns; without a header they are "0", "1", ...
        quotes: whether a field in double quotes may contain delimiters and line breaks; otherwise quotes are ordinary
            characters.
        member: path of keys, joined by dots, to the rows of a json document; the sheet of a workbook.
        nested: whether values may be lists and objects. Otherwise every value is text; numbers and booleans are
            formatted as JSON, since labels are often 0 and 1.
        tagged: whether the first two columns of an export of an annotation tool are read as words and their tags.
    """

    header: bool | None = None
    delimiter: str | None = None
    quotes: bool | None = None
    encoding: str | None = None
    member: str = ""
    nested: bool = False
    tagged: bool = False


PLAIN = Layout()


class RowError(DataError):
    """A row that is not well formed, which a table may have a few of. `line`: where it begins."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@contextmanager
def problem(where: object, *others: type[Exception], what: str = "{}", do: str = "") -> Iterator[None]:
    """Errors within as errors of a place: of data without one, and of the types `others`, whose first line stands for
    the braces in `what`."""
    try:
        yield
    except DataError as error:
        error.where = error.where or where
        raise
    except others as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(what.format(reason), where=where, do=do) from error


def raise_error(error: DataError, row: Any) -> None:
    raise error


@dataclass
class Rows:
    """A file that is read. A reader, a generator of (number, row), says what it reads before its first row.

    Attributes:
        columns: that are asked for; None: all of them.
        rejected: receives bad rows.
        reader: of the format.
        names: the columns; of jsonl, the columns of the first row.
        where: the file, and a member or sheet of it, for messages.
        names_at: where its columns are named, for messages; empty: `where`.
        hint: what else to do about a column that it lacks.
        fixed: whether every row has these columns.
        schema: types of the columns; None if the format has none.
        described: the dialect or layout in words; empty if there is nothing to say.
        loads: an expression of Python for the list of rows of JSON.
        header: whether the first row of a delimited file or sheet names the columns.
        ambiguous: names that several columns of a delimited file have; the second is called `NAME (2)`.
        form, unit: format, as of `data.tasks.<name>.format`, and what it calls a row; empty: places are whole.
        kind: of the task, where the format says it.
    """

    path: Path
    layout: Layout = PLAIN
    reading: Reading = field(default_factory=Reading)
    columns: Sequence[str] | None = None
    rejected: Rejected = raise_error
    names: list[str] = field(default_factory=list)
    numbered: Numbered = field(default_factory=lambda: iter(()))
    reader: Callable[["Rows"], Numbered] = field(default=lambda file: iter(()), repr=False)
    where: str = ""
    names_at: str = ""
    hint: str = ""
    fixed: bool = True
    schema: pa.Schema | None = None
    described: str = ""
    loads: str = ""
    header: bool = True
    ambiguous: frozenset[str] = frozenset()
    form: str = ""
    unit: str = "line"
    kind: str | None = None

    @property
    def rows(self) -> Iterator[tuple[str, Row]]:
        """(place for messages, row) in file order."""
        return ((self.at(place), row) for place, row in self.numbered)

    def at(self, place: object) -> str:
        return f"{self.where or self.path}, {self.unit} {place}" if self.unit else str(place)

    def wants(self, name: str) -> bool:
        return self.columns is None or name in self.columns

    def lines(self, path: Path | None = None) -> Iterator[tuple[int, str]]:
        return lines(path or self.path, self.reading, encoding=self.layout.encoding)

    def refuse_ambiguous(self, path: object, names: Iterable[str]) -> None:
        if twice := sorted(self.ambiguous.intersection(names)):
            raise DataError(f"has two columns {twice[0]!r}; rename one of them", where=path)

    def values(self, columns: Sequence[str], *, nested: bool) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """(number, values of the columns) of each row; a column that another row has is null.

        Raises:
            DataError: a column does not exist, or a value is not text and `nested` is not set.
        """
        # A file without rows may not say its columns.
        if self.fixed and self.names:
            self.refuse_ambiguous(self.path, columns)
            self._check(columns, self.names_at or self.where or str(self.path), self.names)
        is_first = not self.fixed
        for place, row in self.numbered:
            if is_first and not row.keys() >= {*columns}:
                again = Rows(self.path, self.layout, form=self.form, rejected=lambda error, row: None)
                every = {name for _, other in self.reader(again) for name in other}
                self._check(columns, self.at(place), every)
            is_first = False
            values = [row.get(name) for name in columns]
            # A row without any of the columns has wrong names, not missing values.
            if None in values and not row.keys() & {*columns}:
                self._check(columns, self.at(place), row)
            if not nested:
                values = [
                    value if value.__class__ is str else as_text(value, f"{self.at(place)}, column {name!r}")
                    for name, value in zip(columns, values, strict=True)
                ]
            yield place, tuple(values)

    def _check(self, columns: Iterable[str], where: str, names: Iterable[str]) -> None:
        for name in columns:
            if name not in names:
                what = f"no column {name!r}{nearest(name, names)}"
                raise DataError(what, where=where, key="params.yaml", do=f"name the column in {{key}}{self.hint}")


def as_text(value: Any, where: object = "") -> str | None:
    """A value as text; numbers and booleans as in JSON, because labels are often 0 and 1; null stays None.

    Raises:
        DataError: the value is a list or an object; `where` it is.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    what = "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else type(value).__name__
    raise DataError(f"holds {what} where text is expected; name another column, or write the text", where=where)


def are_too_many(bad: int, rows: int) -> bool:
    """Whether so many rows of a file are not well formed, beside `rows` others, that its dialect is wrong: more than
    `MOST_BAD` of them, and more than `FEW_BAD` or one of five."""
    return bad > max(min(FEW_BAD, rows // 5), MOST_BAD * (rows + bad))
