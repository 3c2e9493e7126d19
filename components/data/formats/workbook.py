"""Sheets of workbooks (xlsx, xlsm, xlsb, xls, ods), read by python-calamine."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from components.core.errors import DataError, nearest
from components.data.formats import cells as cells_program
from components.data.formats.bounds import check_archive
from components.data.formats.delimited import different_names
from components.data.formats.dialect import is_header, rows_above_header
from components.data.formats.tables import Opening, Rows

#: Memory in megabytes of the process that reads a workbook.
MEMORY_MB: Final = 4096


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
    read = _cells(path, name)
    names, first = read["names"], None
    if name and name not in names:
        raise DataError(f"{path}: no sheet {name!r}{nearest(name, names)}")
    for each in read["sheets"]:
        cells, filled = each["cells"], 0
        for (top, left), (bottom, _) in each["merged"]:
            if top >= len(cells) or left >= len(cells[top]):
                continue
            filled += bottom > top
            for row in cells[top + 1 : bottom + 1]:
                row[left] = cells[top][left]
        others = tuple(other for other in names if other != each["name"])
        sheet = replace(_sheet(each["name"], cells, header), others=others, filled=filled)
        if name or (len(sheet.names) > 1 and sheet.rows):
            return sheet
        first = first or sheet
    if first is None:
        raise DataError(f"{path}: is empty")
    return first


def read_workbook(file: Opening) -> Rows:
    """The rows of a sheet (`layout.member`, or the first one); numbers count the rows of the sheet, from 1. Errors as
    of `read_sheet`."""
    sheet = read_sheet(file.path, file.layout.member, header=file.layout.header)
    file.reading.consumed += file.path.stat().st_size
    rows = ((number, dict(zip(sheet.names, values, strict=True))) for number, values in sheet.rows)
    opened = file.rows(sheet.names, rows, described=sheet.described(), header=sheet.header)
    return replace(opened, where=f"{file.path}, sheet {sheet.name!r}")


def sheet_names(path: Path) -> list[str]:
    """The names of the sheets of a workbook; none of a file that cannot be read."""
    try:
        return list(_cells(path)["names"])
    except DataError:
        return []


def _cells(path: Path, *sheet: str) -> dict[str, Any]:
    """What `cells.py` reads.

    Raises:
        DataError: the file is missing, damaged, protected or too large.
    """
    check_archive(path)
    command = [sys.executable, str(Path(cells_program.__file__)), str(path), str(MEMORY_MB), *sheet]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise DataError(
            f"{path}: needs more than {MEMORY_MB:,} MB of memory, since a sheet spans too many cells; delete the cells "
            "far from the table, or save it as csv (UTF-8)"
        )
    read: dict[str, Any] = json.loads(done.stdout)
    if "error" in read:
        raise DataError(
            f"{path}: cannot be read as a workbook ({read['error']}); remove a password, or save it as csv (UTF-8)"
        )
    return read


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
