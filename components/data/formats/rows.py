"""The table of formats, and any file as a stream of rows.

A format is a reader, a function in a module of its own, and an entry of `FORMATS`; suffixes, keys and kinds of task are
in `components.settings.formats`. Training asks for columns, and rows that are not well formed are counted. Programs
that look at a file, add columns to it or predict it ask for complete rows; a row that is not well formed is an error,
or with `rejected` a call of that function, and the next row follows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from components.core.errors import DataError
from components.data.formats.annotations.hub import read_hub
from components.data.formats.annotations.tables import READERS as ANNOTATED
from components.data.formats.annotations.tables import open_annotated, read_annotated
from components.data.formats.conll import conll_rows, conllu_rows
from components.data.formats.jsontables import read_json, read_jsonl
from components.data.formats.kinds import form_of
from components.data.formats.lines import Reading
from components.data.formats.parquets import read_parquet
from components.data.formats.plain import read_classes, read_label_first, read_parallel, read_texts
from components.data.formats.separated import read_delimited
from components.data.formats.squad import is_squad, squad_rows
from components.data.formats.tables import (
    PLAIN,
    Layout,
    Opening,
    Reader,
    Rejected,
    Row,
    RowError,
    Rows,
    are_too_many,
    raise_error,
    suffix,
)
from components.data.formats.workbook import read_workbook
from components.settings.detection import detected
from components.settings.formats import SUFFIXES

__all__ = ["FORMATS", "Rejected", "Row", "Rows", "open_rows", "read_columns"]


@dataclass(frozen=True)
class Format:
    """A format: its reader, what a row is called in messages, and the column of its id, if the format has one."""

    read: Reader
    unit: str = "line"
    id: str | None = None


FORMATS: Final = {
    "csv": Format(read_delimited),
    "tsv": Format(read_delimited),
    "jsonl": Format(read_jsonl),
    "json": Format(read_json, "row"),
    "parquet": Format(read_parquet, "row"),
    "workbook": Format(read_workbook, "row"),
    "conll": Format(conll_rows, id="sent_id"),
    "conllu": Format(conllu_rows, id="sent_id"),
    "squad": Format(squad_rows, "question", "id"),
    "label-first": Format(read_label_first),
    "texts": Format(read_texts),
    "classes": Format(read_classes, "text"),
    "parallel": Format(read_parallel),
    "datasets": Format(read_hub, "row"),
    "label-studio": Format(partial(read_annotated, form="label-studio"), "task"),
    "doccano": Format(partial(read_annotated, form="doccano")),
    "prodigy": Format(partial(read_annotated, form="prodigy")),
}


def open_rows(path: Path, *, layout: Layout = PLAIN, rejected: Rejected | None = None) -> Rows:
    """Open a file; its format follows from its name or its content (`components.data.formats.kinds`).

    Args:
        path: the file; FILE#NAME for a sheet of a workbook or a member of a JSON document.
        rejected: receives bad rows; None: they are raised.

    Raises:
        DataError: the format is not known, the file is damaged, or a row does not fit the header; also raised by the
            iterator, with the line.
    """
    name, _, member = str(path).partition("#")
    file, form = Path(name), form_of(Path(name))
    if form in ("json", "jsonl") and not member:
        tool = detected(file, kind="tagging")
        if tool in ANNOTATED and (annotated := open_annotated(file, tool)) is not None:
            return replace(annotated, unit=FORMATS[tool].unit)
        form = "squad" if form == "json" and is_squad(file) else form
    given = replace(layout, member=member or layout.member, nested=True)
    return _opened(form, Opening(file, given, rejected=rejected or raise_error))


def unit_of(path: Path, form: str) -> str:
    """What messages call a row of a file; a repository of the hub may hold files of lines."""
    return FORMATS[SUFFIXES.get(suffix(path.name), form) if form == "datasets" else form].unit


def _opened(form: str, file: Opening) -> Rows:
    return replace(FORMATS[form].read(file), form=form, unit=unit_of(file.path, form))


def read_columns(
    path: Path, form: str, columns: Sequence[str], layout: Layout, reading: Reading
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """(number, values of the columns) of each row; rows that are not well formed are counted.

    Raises:
        DataError: a column does not exist, a value is not as `Layout.nested` demands, or too many rows are not well
            formed (`are_too_many`).
    """
    bad: list[RowError] = []

    def rejected(error: DataError, row: Any) -> None:
        if not isinstance(error, RowError):
            raise error
        bad.append(error)

    table = _opened(form, Opening(path, layout, reading, columns, rejected))
    rows = 0
    for row in table.values(columns, nested=layout.nested):
        rows += 1
        yield row
    if bad:
        reading.leave_out("rows_malformed", [error.line for error in bad])
        if are_too_many(len(bad), rows):
            raise DataError(
                f"{bad[0]}; so are {len(bad):,} of {rows + len(bad):,} rows, read with {table.described}; name the "
                "right ones (--delimiter, --quotes), or save the file as jsonl or parquet"
            )
