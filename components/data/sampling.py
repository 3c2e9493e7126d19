"""A sample of the rows of a labelled file whose format is guessed."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from components.core.errors import DataError
from components.data.formats.annotations.tables import REASONS
from components.data.formats.rows import Rows as OpenRows
from components.data.formats.rows import open_rows
from components.data.formats.tables import PLAIN, Layout

#: Minimum number of rows that are looked at, evenly spaced over the whole file.
ROWS: Final = 5_000
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Rows:
    """A sample of the rows of a file.

    Attributes:
        format: `data.tasks.<name>.format`.
        columns: by name, or by number without a header.
        read: how the file was read, in words.
        kind: of the task, where the format says it.
        loads: an expression of Python for the list of rows of JSON.
    """

    format: str
    columns: list[str]
    rows: list[dict[str, Any]]
    read: list[str] = field(default_factory=list)
    kind: str | None = None
    loads: str = ""


def read_rows(path: Path, layout: Layout = PLAIN) -> Rows:
    """A sample of the rows of a file, of a member of a JSON document or sheet of a workbook (FILE#NAME), or of a folder
    of parallel files.

    Raises:
        DataError: the format is not recognised, or the file is damaged or empty.
    """
    bad: list[DataError] = []
    table = open_rows(path, layout=layout, rejected=lambda error, row: bad.append(error))
    rows = sampled(row for _, row in table.rows)
    if not rows and bad:
        raise DataError(f"{bad[0]}; none of the {len(bad):,} row(s) can be read (--delimiter, --quotes)")
    if not rows:
        raise DataError(f"{path}: holds no rows")
    names = table.names if table.fixed else list(dict.fromkeys(name for row in rows for name in row))
    # A nameless column without values is none.
    names = [name for name in names if not NAMELESS.fullmatch(name) or any(row.get(name) for row in rows)]
    return Rows(table.form, names, rows, list(reading_in_words(table, bad)), table.kind, table.reading.loads)


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
    return [*reading_in_words(table, ())][0 if table.reading.layout else 1 :]


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
