"""The cells of a sheet as JSON, read in a process of its own: `python cells.py FILE MEGABYTES [SHEET]`.

The library allocates the whole rectangle that a sheet spans, and ends its process where memory is not enough. This
file imports nothing of the package, so that the process starts fast."""

import json
import resource
import sys
from datetime import datetime, time
from typing import Any

from python_calamine import CalamineError, CalamineWorkbook, SheetVisibleEnum


def text_of(cell: Any) -> str:
    """A cell as a spreadsheet shows it: whole numbers without a decimal point, dates as ISO 8601."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime) and cell.time() == time():
        return str(cell.date())
    return str(cell)


def main(path: str, megabytes: int, wanted: str | None = None) -> dict[str, Any]:
    """The names of the sheets, hidden ones last; with `wanted`, also the name, cells and merged ranges of that sheet,
    or of all sheets for an empty name, except empty ones."""
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    try:
        workbook = CalamineWorkbook.from_path(path)
        names = [
            each.name
            for each in sorted(workbook.sheets_metadata, key=lambda each: each.visible != SheetVisibleEnum.Visible)
        ]
        sheets = []
        for name in names:
            if wanted not in ("", name):
                continue
            sheet = workbook.get_sheet_by_name(name)
            cells = [[text_of(cell) for cell in row] for row in sheet.to_python(skip_empty_area=False)]
            if any(any(row) for row in cells):
                sheets.append({"name": name, "cells": cells, "merged": sheet.merged_cell_ranges or []})
    except (CalamineError, OSError) as error:
        return {"error": str(error)}
    return {"names": names, "sheets": sheets}


if __name__ == "__main__":
    json.dump(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]), sys.stdout)
