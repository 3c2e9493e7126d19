"""Cells of csv and tsv files that people open in a spreadsheet, which takes a text such as `=1+2` for a formula.

A cell that begins like a formula gets an apostrophe in front, which readers take away again. So does one that begins
with apostrophes before such a beginning, so that every text is read back as it was. Numbers are no formulas.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

#: The beginning of a formula, also in full-width characters; tabs and line ends are removed before it.
_FORMULA: Final = re.compile(r"'*(?![+-]?\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?%?\Z)[=+\-@\t\r\n＝＋－＠]")


def escaped(value: Any) -> Any:
    """The cell of a value: a text that a spreadsheet would take for a formula begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def restored(cell: str) -> str:
    """The text of a cell that `escaped` has made."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell, 1) else cell


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
