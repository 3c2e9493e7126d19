"""Files as the readers of training data give them."""

from pathlib import Path
from typing import Any

from components.data.formats.lines import Reading
from components.data.formats.rows import read_columns
from components.data.formats.tables import Layout


def columns(form: str, path: Path, *names: str, reading: Reading | None = None, **layout: Any) -> list[tuple[Any, ...]]:
    """The values of the columns of each row."""
    return [values for _, values in read_columns(path, form, names, Layout(**layout), reading)]


def numbered(form: str, path: Path, *names: str, **layout: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """(number, values of the columns) of each row."""
    return list(read_columns(path, form, names, Layout(**layout)))
