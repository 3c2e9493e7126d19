"""Sheets of workbooks (xlsx, xlsm, xlsb, xls, ods), read by python-calamine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

from python_calamine import CalamineError, CalamineWorkbook

from components.core.errors import DataError, nearest
from components.data.formats.delimited import different_names
from components.data.formats.dialect import is_header, rows_above_header

SUFFIXES: Final = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")


@dataclass(frozen=True)
class Sheet:
    """A sheet.

    Attributes:
        header: whether they are the sheet's first row.
        rows: (number in the sheet, text of every cell; None of an empty one).
        others: names of the other sheets.
        above: number of rows above the header, which are left out.
        filled: number of merged cells over several rows, which all have its value.
    """

    name: str
    names: list[str]
    header: bool
    rows: list[tuple[int, list[str | None]]]
    others: tuple[str, ...] = ()
    above: int = 0
    filled: int = 0

    def described(self) -> str:
        """Which sheet is read, and how, in words."""
        others = f" (FILE#SHEET for another: {', '.join(self.others)})" if self.others else ""
        above = f"; {self.above} row(s) above the header are left out" if self.above else ""
        filled = f"; the value of {self.filled} merged cell(s) counts in each of their rows" if self.filled else ""
        return f"sheet {self.name!r}{others}{above}{filled}"


def read_sheet(path: Path, name: str, *, header: bool | None = None) -> Sheet:
    """A sheet of a workbook, without empty rows and without nameless columns that are empty.

    Args:
        name: of the sheet; empty: the first one that is a table, else the first one that is not empty.
        header: whether the first row names the columns; None: guessed.

    Raises:
        DataError: the file is damaged or protected, or there is no such sheet.
    """
    try:
        workbook = CalamineWorkbook.from_path(path)
        names = workbook.sheet_names
        if name and name not in names:
            raise DataError(f"{path}: no sheet {name!r}{nearest(name, names)}")
        first: Sheet | None = None
        for sheet in [name] if name else names:
            opened = workbook.get_sheet_by_name(sheet)
            cells = opened.to_python(skip_empty_area=False)
            if any(cell != "" for row in cells for cell in row):
                filled = 0
                for (top, left), (bottom, _) in opened.merged_cell_ranges or ():
                    if top >= len(cells) or left >= len(cells[top]):
                        continue
                    filled += bottom > top
                    for row in cells[top + 1 : bottom + 1]:
                        row[left] = cells[top][left]
                read = _sheet(sheet, [list(map(_text, row)) for row in cells], header)
                read = replace(read, others=tuple(other for other in names if other != sheet), filled=filled)
                if name or (len(read.names) > 1 and read.rows):
                    return read
                first = first or read
        if first is not None:
            return first
    except (CalamineError, OSError) as error:
        raise DataError(
            f"{path}: cannot be read as a workbook ({error}); remove a password, or save it as csv (UTF-8)"
        ) from error
    raise DataError(f"{path}: is empty")


def sheet_names(path: Path) -> list[str]:
    """The names of the sheets of a workbook; none of a file that cannot be read."""
    try:
        return list(CalamineWorkbook.from_path(path).sheet_names)
    except (CalamineError, OSError):
        return []


def _sheet(name: str, cells: Sequence[list[str]], header: bool | None) -> Sheet:
    filled = [(number, row) for number, row in enumerate(cells, 1) if any(cell.strip() for cell in row)]
    above = 0
    if header is None and (above := rows_above_header([row for _, row in filled[:1000]])):
        filled, header = filled[above:], True
    first, rest = filled[0][1], [row for _, row in filled[1:]]
    header = is_header(first, rest[:1000]) if header is None else header
    used = [
        column
        for column in range(len(first))
        if (header and first[column]) or any(row[column] for row in rest) or not rest
    ]
    names = (
        different_names([first[column] for column in used]) if header else [str(column) for column in range(len(used))]
    )
    rows = [(number, [row[column] or None for column in used]) for number, row in filled[1 if header else 0 :]]
    return Sheet(name, names, header, [(number, row) for number, row in rows if any(row)], above=above)


def _text(cell: Any) -> str:
    """A cell as a spreadsheet shows it: whole numbers without a decimal point, dates as ISO 8601."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date().isoformat()
    if isinstance(cell, datetime | date | time):
        return cell.isoformat(" ") if isinstance(cell, datetime) else cell.isoformat()
    return str(cell) if isinstance(cell, bool | int | float | timedelta) else cell
