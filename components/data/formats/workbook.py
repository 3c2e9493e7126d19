"""Sheets of workbooks (xlsx, xlsm, xlsb, xls, ods), read by python-calamine."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from components.core.errors import DataError, nearest
from components.data.formats import cells as cells_program
from components.data.formats.delimited import ROWS, different_names, header_of
from components.data.formats.lines import check_archive
from components.data.formats.tables import Numbered, Rows

#: Memory in megabytes of the process that reads a workbook.
MEMORY_MB: Final = 4096


def read_workbook(file: Rows) -> Numbered:
    """The rows of a sheet, without empty rows and without nameless columns that are empty; numbers count the rows of
    the sheet, from 1. The sheet is `layout.member`, else the first one that is a table, else the first one that is not
    empty.

    Raises:
        DataError: the file is damaged or protected, or there is no such sheet.
    """
    path, member = file.path, file.layout.member
    read = _cells(path, member)
    if member and member not in read["names"]:
        raise DataError(f"{path}: no sheet {member!r}{nearest(member, read['names'])}")
    if not read["sheets"]:
        raise DataError(f"{path}: is empty")
    sheets = [(each["name"], *_table(each["cells"], each["merged"], file.layout.header)) for each in read["sheets"]]
    is_table = ((name, names, *rest) for name, names, *rest in sheets if member or (len(names) > 1 and rest[1]))
    name, file.names, file.header, rows, notes = next(is_table, sheets[0])
    others = ", ".join(other for other in read["names"] if other != name)
    file.described = f"sheet {name!r}" + (f" (FILE#SHEET for another: {others})" if others else "") + notes
    file.where = f"{path}, sheet {name!r}"
    for number, values in rows:
        yield number, dict(zip(file.names, values, strict=True))


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
            f"{path}: cannot be read as a workbook ({read['error']}); remove a password, unpack an archive, "
            "or save it as csv (UTF-8)"
        )
    return read


def _table(
    cells: Sequence[list[str]], merged: Sequence[Any], header: bool | None
) -> tuple[list[str], bool, list[tuple[int, list[str | None]]], str]:
    """The names of the columns; whether they are a row of the sheet; (number, text of every cell; None of an empty one)
    of the rows; and what else is to be known, in words."""
    copied = 0
    for (top, left), (bottom, _) in merged:
        if top < len(cells) and left < len(cells[top]):
            copied += bottom > top
            for row in cells[top + 1 : bottom + 1]:
                row[left] = cells[top][left]
    filled = [(number, row) for number, row in enumerate(cells, 1) if any(cell.strip() for cell in row)]
    header, above = header_of([row for _, row in filled[: ROWS + 1]], header)
    first, *rest = (row for _, row in filled[above:])
    used = [at for at, cell in enumerate(first) if (header and cell) or any(row[at] for row in rest) or not rest]
    names = different_names([first[at] for at in used]) if header else [str(number) for number in range(len(used))]
    rows = [(number, [row[at] or None for at in used]) for number, row in filled[above + header :]]
    notes = f"; {above} row(s) above the header are left out" if above else ""
    notes += f"; the value of {copied} merged cell(s) counts in each of their rows" if copied else ""
    return names, header, [(number, row) for number, row in rows if any(row)], notes
