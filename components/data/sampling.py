"""A sample of the rows of a labelled file whose format is guessed."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from components.core.errors import DataError
from components.data.formats.annotations import REASONS
from components.data.formats.rows import open_rows
from components.data.formats.tables import PLAIN, Layout, are_too_many
from components.data.formats.tables import Rows as OpenRows

#: Minimum number of rows that are looked at, evenly spaced over the whole file.
ROWS: Final = 5_000
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Rows:
    """Rows by column.

    Attributes:
        columns: name, or number without a header -> one value per row.
        format: `data.tasks.<name>.format`.
        read: how the file was read, and what was left out, in words.
        kind: of the task, where the format says it.
        loads: an expression of Python for the list of rows of JSON.
        place: number of a row -> its place, for messages.
        ambiguous: names that several columns of a file have.
    """

    columns: Mapping[str, list[Any]]
    format: str = ""
    read: Sequence[str] = ()
    kind: str | None = None
    loads: str = ""
    place: Callable[[int], str] = "row {}".format
    ambiguous: frozenset[str] = frozenset()


def read_rows(
    path: Path, layout: Layout = PLAIN, *, whole: bool = False, most: int | None = None, form: str = ""
) -> Rows:
    """A sample of the rows of a file, or of its first `most` rows, or the `whole` file; of a member of a JSON document
    or sheet of a workbook (FILE#NAME), or of a folder of parallel files. `form`: as of `open_rows`.

    Raises:
        DataError: the format is not recognised, or the file is damaged; a sample is empty; too many rows of a whole
            file cannot be read.
    """
    bad: list[DataError] = []
    table = open_rows(path, layout=layout, rejected=lambda error, row: bad.append(error), form=form)
    rows = list(table.rows) if whole else sampled(islice(table.rows, most))
    if whole and bad and (table.form == "jsonl" or are_too_many(len(bad), len(rows))):
        raise DataError(f"{bad[0]}; {len(bad):,} of {len(rows) + len(bad):,} rows cannot be read")
    if not whole and not rows:
        none = f"{bad[0]}; none of the {len(bad):,} row(s) can be read (--delimiter, --quotes)" if bad else ""
        raise DataError(none or f"{path}: holds no rows")
    names = table.names if table.fixed else ()
    columns = by_column((row for _, row in rows), names)
    return Rows(
        # A nameless column without values is none.
        {name: values for name, values in columns.items() if any(values) or not NAMELESS.fullmatch(name)},
        table.form,
        list(reading_in_words(table, bad)),
        table.kind,
        table.loads,
        lambda number: rows[number][0],
        table.ambiguous,
    )


def by_column(rows: Iterable[Mapping[str, Any]], names: Iterable[str] = ()) -> dict[str, list[Any]]:
    """The values of each column, None where a row lacks it. `names`: of columns that come first."""
    rows = list(rows)
    every = dict.fromkeys([*names, *(name for row in rows for name in row)])
    return {name: [row.get(name) for row in rows] for name in every}


def sampled(rows: Iterable[_Row]) -> list[_Row]:
    """At least `ROWS` of the rows, if there are as many: every row, every second one, every fourth one and so on."""
    kept: list[_Row] = []
    step = 1
    for number, row in enumerate(rows):
        if number % step == 0:
            kept.append(row)
            if len(kept) == 2 * ROWS:
                kept, step = kept[::2], 2 * step
    return kept


#: Name of a column without one.
NAMELESS: Final = re.compile(r"column \d+")


def guessed_in_words(path: Path) -> list[str]:
    """What is guessed of a file that is to be predicted: an encoding, or a layout of JSON. The errors of a file that
    cannot be read are left to its prediction."""
    try:
        table = open_rows(path, rejected=lambda error, row: None)
        next(table.rows, None)
    except DataError:
        return []
    return [*reading_in_words(table, ())][0 if table.form == "json" and table.described else 1 :]


def reading_in_words(table: OpenRows, bad: Sequence[DataError]) -> Iterator[str]:
    """How a table was read, and what was left out."""
    encoding = table.reading.encoding
    read = [f"encoding {encoding.name}", table.described]
    if table.described and table.fixed:
        read.append(f"the first row is {'' if table.header else 'not '}the header")
    yield "; ".join(filter(None, read))
    if encoding.example:
        others = f" (or {', '.join(encoding.others)}; --encoding)" if encoding.others else " (--encoding)"
        yield f"the encoding is guessed{others}, as in: {encoding.example}" + (
            f" ({encoding.telling})" if encoding.telling else ""
        )
    if table.reading.bad_lines:
        places = ", ".join(map(str, table.reading.first_bad))
        yield f"warning: {table.reading.bad_lines} line(s) have bytes that are not {encoding.name}: line {places}"
    if bad:
        yield f"warning: {len(bad)} row(s) cannot be read and are left out, the first: {bad[0]}"
    yield from (f"{count} {REASONS.get(reason, reason)}" for reason, count in table.reading.skipped.items() if count)
