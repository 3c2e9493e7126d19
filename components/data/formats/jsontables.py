"""JSON lines and JSON documents as rows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from components.core.errors import DataError, nearest
from components.data.formats.dialect import USUAL, is_header
from components.data.formats.layouts import lists_in, pair_row, rows_of, tagged
from components.data.formats.lines import Reading, loads, whole
from components.data.formats.tables import SHOWN, Opening, Row, Rows


def read_jsonl(file: Opening) -> Rows:
    """One JSON object per line; empty lines are skipped.

    Raises:
        DataError: no line can be read, if all columns are asked for.
    """
    path = file.path
    file.reading.loads = f"[json.loads(line) for line in open({str(path)!r})]"
    refused: list[DataError] = []

    def refuse(error: DataError, row: Any) -> None:
        refused.append(error)
        file.rejected(error, row)

    rows = _objects(replace(file, rejected=refuse))
    names: list[str] = []
    if file.columns is None:
        if (first := next(rows, None)) is None:
            raise DataError(f"{path}: " + ("no line can be read as a row" if refused else "is empty"))
        names, rows = list(first[1]), chain([first], rows)

    def every_name() -> Iterator[str]:
        # Lines that cannot be read are refused or counted where their rows are read.
        again = Opening(path, file.layout, rejected=lambda error, row: None)
        return (name for _, row in _objects(again) for name in row)

    return file.rows(names, rows, fixed=False, every_name=every_name)


def _objects(file: Opening) -> Iterator[tuple[int, Row]]:
    columns, reading = file.columns, file.reading
    for number, line in file.lines():
        if not line or line.isspace():
            continue
        if columns is not None and (plain := _plain(line, columns)) is not None:
            yield number, plain
            continue
        try:
            row, replaced = parse_object(line, f"{file.path}, line {number}")
        except DataError as error:
            file.rejected(error, line[:SHOWN])
            continue
        if columns is not None and replaced:
            reading.bad_bytes += replaced
            reading.bad_lines += 1
        yield number, row


def _plain(line: str, columns: Sequence[str]) -> Row | None:
    """The object of a line in which the columns are text, as in most corpora."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return row if row.__class__ is dict and all(row.get(name).__class__ is str for name in columns) else None


def json_objects(path: Path, reading: Reading) -> Iterator[tuple[int, Row]]:
    """(line number, object) of a file with one JSON object per line; empty lines are skipped.

    Raises:
        DataError: a line is not a JSON object.
    """
    return _objects(Opening(path, reading=reading))


def parse_object(line: str, where: str) -> tuple[Row, int]:
    """The JSON object of a line, and the number of lone surrogates replaced by U+FFFD.

    Raises:
        DataError: the line is not a JSON object.
    """
    try:
        row, replaced = loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not valid JSON ({error}); every line must be one object") from error
    row = tagged(pair_row(row))
    if not isinstance(row, dict):
        raise DataError(f"{where}: is no JSON object with named values")
    return row, replaced


def read_json(file: Opening) -> Rows:
    """The rows of one JSON document: a list of objects, or of lists whose values are the columns "0", "1", ... A member
    that other objects have may be missing: it is null.

    `layout.member` is the path to the list within the document: `train` in `{"train": [["text", "label"]]}`.

    Raises:
        DataError: the file is not JSON, the member does not exist, or a row is neither object nor list.
    """
    path, layout, reading = file.path, file.layout, file.reading
    rows: Any = parse_json(path, reading)
    for key in layout.member.split(".") if layout.member else []:
        if not isinstance(rows, dict) or key not in rows:
            members = nearest(key, rows) if isinstance(rows, dict) else f"; there is a {type(rows).__name__}"
            raise DataError(f"{path}: no member {key!r}{members}; name it in params.yaml as FILE#MEMBER")
        rows = rows[key]
    document = f"{path}{'#' * bool(layout.member)}{layout.member}"
    rows, inside, said = rows_of(rows)
    reading.layout = said
    keys = filter(None, [*layout.member.split("."), *inside.split(".")])
    reading.loads = f"json.load(open({str(path)!r}))" + "".join(f"[{name!r}]" for name in keys)
    if not isinstance(rows, list):
        lists = list(dict(lists_in(rows)))
        hint = f"name one of its members ({', '.join(lists[:9])}) as FILE#MEMBER" if lists else "save it as jsonl"
        raise DataError(f"{document}: is no list of rows; {hint}")
    if _begins_with_header(rows) if layout.header is None else layout.header:
        rows = [dict(zip(rows[0], row, strict=False)) for row in rows[1:]]
    shared = dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row)
    numbered: list[tuple[int, Row]] = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict | list):
            where = f"{document}, row {number}"
            raise DataError(f"{where}: is a {type(row).__name__}, neither an object nor a list of values")
        named = shared | row if isinstance(row, dict) else {str(index): value for index, value in enumerate(row)}
        numbered.append((number, named))
    names = list(dict.fromkeys(name for _, row in numbered for name in row))
    described = f"layout: {said}" if said else ""
    return replace(file.rows(names, iter(numbered), fixed=False, described=described), where=document)


def _begins_with_header(rows: Sequence[Any]) -> bool:
    """Whether the first of lists of texts has usual names, and is unlike the others."""
    texts = all(isinstance(row, list) and all(isinstance(cell, str) for cell in row) for row in rows)
    return (
        texts
        and len(rows) > 1
        and bool(USUAL & {cell.casefold() for cell in rows[0]})
        and is_header(rows[0], rows[1:1000])
    )


def parse_json(path: Path, reading: Reading) -> Any:
    try:
        value, replaced = loads(whole(path, reading))
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error})") from error
    reading.bad_bytes += replaced
    return value
