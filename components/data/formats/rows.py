"""Any file as a stream of rows.

A format is an entry of `components.settings.formats.FORMATS`, which names its reader, a function in a module of its
own. Training asks for columns, and rows that are not well formed are counted. Programs that look at a file, add columns
to it or predict it ask for complete rows; a row that is not well formed is an error, or with `rejected` a call of that
function, and the next row follows.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from components.core.errors import DataError
from components.data.formats.delimited import USUAL
from components.data.formats.kinds import form_of
from components.data.formats.lines import Reading
from components.data.formats.plain import FASTTEXT
from components.data.formats.tables import PLAIN, Layout, Rejected, RowError, Rows, are_too_many, raise_error
from components.settings.formats import FORMATS, by_name, is_table, reader_of, suffix_of
from components.settings.tasks import has


def open_rows(path: Path, *, layout: Layout = PLAIN, rejected: Rejected | None = None, form: str = "") -> Rows:
    """Open a file; its format follows from its name or its content (`components.data.formats.kinds`).

    Args:
        path: the file; FILE#NAME for a sheet of a workbook or a member of a JSON document.
        rejected: receives bad rows; None: they are raised.
        form: the format; empty: guessed.

    Raises:
        DataError: the format is not known, the file is damaged, or a row does not fit the header; also raised by the
            iterator, with the line.
    """
    name, _, member = str(path).partition("#")
    layout = replace(layout, member=member or layout.member, nested=True)
    file = Rows(Path(name), layout, rejected=rejected or raise_error)
    form = form or form_of(file.path, whole=not member)
    rows = _opened(form, replace(file))
    # Records of doccano that a table holds as well.
    plain = form == "doccano" and not has(rows.kind or "", "words") and "cats" not in rows.names
    return _opened("jsonl", file) if plain else rows


def form_of_texts(path: Path, names: Collection[str] | None = None, labels: Collection[str] = ()) -> str:
    """`texts` if a txt file has a text in each line, else empty: its content says what it is. Texts may have equally
    many commas, or begin with equal words.

    Args:
        names: inputs of the task and their columns. A file to be predicted is a table with one of them, or with a
            usual column. None: it may have labels, and what tells them from texts counts.
        labels: of the task, which may be a column of a file to be predicted, or begin its lines.

    Raises:
        DataError: the file does not exist, or is no text.
    """
    if suffix_of(path.name) != ".txt" or "*" in path.name:
        return ""
    form = form_of(path)
    with suppress(DataError):
        table = open_rows(path, form=form)
        rows = [row for _, row in islice(table.rows, 200)]
        usual = table.header and not USUAL.isdisjoint(map(str.casefold, table.names))
        labelled = bool(labels) and any(all(row.get(name) in labels for row in rows) for name in table.names)
        if names is None:
            known = usual or form not in ("csv", "json")
        elif form == "label-first":
            known = labelled or next(table.lines())[1].startswith(FASTTEXT)
        else:
            known = labelled or (usual and is_table(form)) or not {*names}.isdisjoint(table.names)
            known = known or form in ("json", "jsonl")
        return "" if known and form != "texts" else "texts"
    return "texts"


def unit_of(path: Path, form: str) -> str:
    """What messages call a row of a file; a repository of the hub may hold files of lines."""
    form = by_name(path.name) or form if form == "datasets" else form
    return FORMATS[form].unit if form in FORMATS else "line"


def _opened(form: str, file: Rows) -> Rows:
    """The file, read up to its first row."""
    file.form, file.unit, file.reader = form, unit_of(file.path, form), reader_of(form)
    kinds = FORMATS[form].kinds if form in FORMATS else ()
    numbered = file.reader(file)
    if (first := next(numbered, None)) is not None:
        file.names, file.numbered = file.names or [*first[1]], chain([first], numbered)
    file.kind = file.kind or (kinds[0] if len(kinds) == 1 else None)
    return file


def read_columns(
    path: Path, form: str, columns: Sequence[str], layout: Layout = PLAIN, reading: Reading | None = None
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """(number, values of the columns) of each row; rows that are not well formed are counted in `reading`.

    Raises:
        DataError: a column does not exist, a value is not as `Layout.nested` demands, or too many rows are not well
            formed (`are_too_many`).
    """
    bad: list[RowError] = []

    def rejected(error: DataError, row: Any) -> None:
        if not isinstance(error, RowError):
            raise error
        bad.append(error)

    table = _opened(form, Rows(path, layout, reading or Reading(), columns, rejected))
    rows = 0
    for row in table.values(columns, nested=layout.nested):
        rows += 1
        yield row
    if bad:
        table.reading.leave_out("rows_malformed", [error.line for error in bad])
        if are_too_many(len(bad), rows):
            raise DataError(
                f"{bad[0]}; so are {len(bad):,} of {rows + len(bad):,} rows, read with {table.described}; name the "
                "right ones (--delimiter, --quotes), or save the file as jsonl or parquet"
            )
