"""What every format is read as: rows with all columns, in the order of the file, and their places; the values of named
columns are a projection of them."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
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
#: What to do about a column that a file lacks.
NAME_IT: Final = "name the column in {key}"

Row = dict[str, Any]
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


@dataclass(frozen=True)
class Rows:
    """An open file.

    Attributes:
        names: its columns; of jsonl, the columns of the first row.
        numbered: (number of the line or row from 1, or its name; row) in file order.
        reading: counts of what was read so far, and the encoding.
        where: the file, and a member or sheet of it, for messages.
        names_at: where its columns are named, for messages; empty: `where`.
        no_column, name_it: what is said about a column that it lacks, and what to do.
        fixed: whether every row has these columns.
        schema: types of the columns; None if the format has none.
        described: the dialect in words; empty if the format has none.
        header: whether the first row of a delimited file or sheet names the columns.
        ambiguous: names that several columns of a delimited file have; the second is called `NAME (2)`.
        every_name: the columns of all rows, of a format whose rows may lack some.
        form, unit: format, as of `data.tasks.<name>.format`, and what it calls a row.
        kind: of the task, where the format says it.
    """

    names: list[str]
    numbered: Iterator[tuple[Any, Row]]
    reading: Reading
    where: str
    names_at: str = ""
    no_column: str = "no column {name!r}{near}"
    name_it: str = NAME_IT
    fixed: bool = True
    schema: pa.Schema | None = None
    described: str = ""
    header: bool = True
    ambiguous: frozenset[str] = frozenset()
    every_name: Callable[[], Iterable[str]] | None = field(default=None, repr=False)
    form: str = ""
    unit: str = "line"
    kind: str | None = None

    @property
    def rows(self) -> Iterator[tuple[str, Row]]:
        """(place for messages, row) in file order."""
        return ((self.at(place), row) for place, row in self.numbered)

    def at(self, place: object) -> str:
        return f"{self.where}, {self.unit} {place}"

    def refuse_ambiguous(self, path: object, names: Iterable[str]) -> None:
        if twice := sorted(self.ambiguous.intersection(names)):
            raise DataError(f"{path}: has two columns {twice[0]!r}; rename one of them")

    def values(self, columns: Sequence[str], *, nested: bool) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """(number, values of the columns) of each row; a column that another row has is null.

        Raises:
            DataError: a column does not exist, or a value is not text and `nested` is not set.
        """
        if self.fixed:
            self.refuse_ambiguous(self.where, columns)
            for name in columns:
                if name not in self.names:
                    raise self._lacks(name, self.names_at or self.where, self.names)
        others: Row = {}
        for place, row in self.numbered:
            try:
                values = [row[name] for name in columns]
            except KeyError:
                # A row without any of the columns has wrong names, not missing values.
                if self.every_name is not None and row.keys() & {*columns}:
                    others = others or dict.fromkeys(self.every_name())
                    row = others | row
                if lacking := [name for name in columns if name not in row]:
                    raise self._lacks(lacking[0], self.at(place), row) from None
                values = [row[name] for name in columns]
            if not nested:
                values = [
                    value if value.__class__ is str else as_text(value, f"{self.at(place)}, column {name!r}")
                    for name, value in zip(columns, values, strict=True)
                ]
            yield place, tuple(values)

    def _lacks(self, name: str, where: str, names: Iterable[str]) -> DataError:
        what = self.no_column.format(name=name, near=nearest(name, list(names)))
        return DataError(what, where=where, key="params.yaml", do=self.name_it)


def raise_error(error: DataError, row: Any) -> None:
    raise error


@dataclass(frozen=True)
class Opening:
    """A file that is to be opened: its layout, the counts of what is read, the columns that are asked for (None: all of
    them), and what receives bad rows."""

    path: Path
    layout: Layout = PLAIN
    reading: Reading = field(default_factory=Reading)
    columns: Sequence[str] | None = None
    rejected: Rejected = raise_error

    def wants(self, name: str) -> bool:
        return self.columns is None or name in self.columns

    def rows(self, names: list[str], numbered: Iterator[tuple[Any, Row]], **given: Any) -> Rows:
        """The open file; `given`: attributes of `Rows`."""
        return Rows(names, numbered, self.reading, str(self.path), **given)

    def lines(self) -> Iterator[tuple[int, str]]:
        return lines(self.path, self.reading, encoding=self.layout.encoding)


Reader = Callable[[Opening], Rows]


def as_text(value: Any, where: object) -> str | None:
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
