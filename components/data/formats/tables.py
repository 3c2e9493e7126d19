"""Tables as streams of rows: jsonl, csv, tsv, parquet and json; all but Parquet may be compressed (.gz, .zst).

A reader is a generator over one file. All but `read_json` stream: one block of lines or one Parquet batch is in memory.
`TABLES` maps formats to readers; a new format is one function and one entry of the table.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.errors import DataError, nearest
from components.data.formats.class_names import class_names, named
from components.data.formats.delimited import Bad, Delimited, opened
from components.data.formats.dialect import USUAL, detect_dialect, is_header
from components.data.formats.layouts import lists_in, pair_row, rows_of, tagged
from components.data.formats.lines import LINE_BYTES, Reading, decode, loads, text_blocks, too_long, whole
from components.data.formats.workbook import read_sheet

#: (line or row number from 1, values of the named columns; None where a value is null)
Row = tuple[int, tuple[Any, ...]]

COMPRESSED = (".gz", ".zst")
_PARSED_BYTES = 1 << 18
_PARQUET_ROWS = 4_096
_PARQUET_BYTES = 4_000_000


@dataclass(frozen=True)
class Layout:
    """Layout of a table; None: guessed.

    Attributes:
        header: whether the first line names the columns; without a header they are "0", "1", ...
        quotes: whether a field in double quotes may contain delimiters and line breaks; otherwise quotes are ordinary
            characters.
        member: path of keys, joined by dots, to the rows of a json document.
        nested: whether values may be lists and objects. Otherwise every value is text; numbers and booleans are
            formatted as JSON, since labels are often 0 and 1.
    """

    header: bool | None = None
    delimiter: str | None = None
    quotes: bool | None = None
    encoding: str | None = None
    member: str = ""
    nested: bool = False


PLAIN = Layout()
#: Share of the rows that may be not well formed; of a file with more, the dialect is wrong.
MOST_BAD: Final = 0.05
#: Number of them that a file of ten or more rows may have.
FEW_BAD: Final = 2


def read_jsonl(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """One JSON object per line; empty lines are skipped. A missing member is null if other objects have it.

    Raises:
        DataError: a line is not a JSON object or has none of the columns, no line has one of them, or a value has
            another type.
    """
    number = 0
    names: dict[str, Any] = {}
    for block in _line_blocks(path, reading, layout.encoding):
        rows = _plain_rows(block, columns)
        if rows is not None:
            yield from enumerate(rows, number + 1)
        else:
            for line, row in _objects(path, block, number, reading):
                if not names and not row.keys() >= {*columns}:
                    names = dict.fromkeys(name for _, each in json_objects(path, Reading()) for name in each)
                # An object without any of the columns has wrong names, not missing values.
                whole = names | row if row.keys() & {*columns} else row
                yield line, picked(whole, columns, layout, f"{path}, line {line}")
        number += block.count(b"\n") + 1


def json_objects(path: Path, reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a file with one JSON object per line; empty lines are skipped.

    Raises:
        DataError: a line is not a JSON object.
    """
    number = 0
    for block in _line_blocks(path, reading, None):
        yield from _objects(path, block, number, reading)
        number += block.count(b"\n") + 1


def _line_blocks(path: Path, reading: Reading, encoding: str | None) -> Iterator[bytes]:
    """Blocks of lines without the last line feed, which fit into the processor's cache as parsed objects."""
    for block in text_blocks(path, reading, encoding=encoding, limit=LINE_BYTES):
        start, stop = 0, len(block.removesuffix(b"\n"))
        while start <= stop:
            end = block.find(b"\n", min(start + _PARSED_BYTES, stop), stop)
            end = stop if end < 0 else end
            yield block[start:end]
            start = end + 1


def _plain_rows(block: bytes, columns: Sequence[str]) -> Iterator[tuple[Any, ...]] | None:
    """The values of the columns, if every line is an object in which they are text."""
    try:
        rows = orjson.loads(b"[" + block.replace(b"\n", b",") + b"]")
        values = [[row[name] for row in rows] for name in columns]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if len(rows) != block.count(b"\n") + 1 or set(map(type, chain.from_iterable(values))) != {str}:
        return None
    return zip(*values, strict=True)


def _objects(path: Path, block: bytes, before: int, reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, raw in enumerate(block.split(b"\n"), before + 1):
        if not raw or raw.isspace():
            continue
        row, replaced = parse_object(raw.decode(), f"{path}, line {number}")
        if replaced:
            reading.bad_bytes += replaced
            reading.bad_lines += 1
        yield number, row


def parse_object(line: str, where: str) -> tuple[dict[str, Any], int]:
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


def read_json(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """The named columns of the rows of one JSON document (`json_rows`)."""
    for number, row in json_rows(path, layout, reading):
        yield number, picked(row, columns, layout, f"{path}{'#' * bool(layout.member)}{layout.member}, row {number}")


def json_rows(path: Path, layout: Layout, reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of one JSON document: a list of objects, or of lists whose values are the columns "0", "1", ... A member
    that other objects have may be missing: it is null.

    `layout.member` is the path to the list within the document: `train` in `{"train": [["text", "label"]]}`.

    Raises:
        DataError: the file is not JSON, the member does not exist, a row is neither object nor list, or a row lacks a
            column.
    """
    rows: Any = parse_json(path, reading)
    for key in layout.member.split(".") if layout.member else []:
        if not isinstance(rows, dict) or key not in rows:
            members = nearest(key, rows) if isinstance(rows, dict) else f"; there is a {type(rows).__name__}"
            raise DataError(f"{path}: no member {key!r}{members}; name it in params.yaml as FILE#MEMBER")
        rows = rows[key]
    document = f"{path}{'#' * bool(layout.member)}{layout.member}"
    rows, inside, reading.layout = rows_of(rows)
    keys = filter(None, [*layout.member.split("."), *inside.split(".")])
    reading.loads = f"json.load(open({str(path)!r}))" + "".join(f"[{name!r}]" for name in keys)
    if not isinstance(rows, list):
        lists = list(dict(lists_in(rows)))
        hint = f"name one of its members ({', '.join(lists[:9])}) as FILE#MEMBER" if lists else "save it as jsonl"
        raise DataError(f"{document}: is no list of rows; {hint}")
    if _begins_with_header(rows) if layout.header is None else layout.header:
        rows = [dict(zip(rows[0], row, strict=False)) for row in rows[1:]]
    names = dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row)
    for number, row in enumerate(rows, 1):
        where = f"{document}, row {number}"
        if isinstance(row, list):
            row = {str(index): value for index, value in enumerate(row)}
        elif isinstance(row, dict):
            row = names | row
        if not isinstance(row, dict):
            raise DataError(f"{where}: is a {type(row).__name__}, neither an object nor a list of values")
        yield number, row


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


def picked(row: dict[str, Any], columns: Sequence[str], layout: Layout, where: str) -> tuple[Any, ...]:
    """The values of columns of one row, as `Layout.nested` demands them.

    Raises:
        DataError: a column is missing, or a value is not text.
    """
    try:
        values = tuple([row[name] for name in columns])
    except KeyError as error:
        raise _no_column(where, str(error.args[0]), row) from error
    if layout.nested:
        return values
    return tuple(
        [
            value if value.__class__ is str else as_text(value, f"{where}, column {name!r}")
            for name, value in zip(columns, values, strict=True)
        ]
    )


def as_text(value: Any, where: object) -> str | None:
    """A value as text; numbers and booleans as in JSON, because labels are often 0 and 1; null stays None.

    Raises:
        DataError: the value is a list or an object; `where` it is.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    what = "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else type(value).__name__
    raise DataError(f"{where}: holds {what} where text is expected; name another column, or write the text")


def read_csv(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """Delimited text, whose dialect is guessed where the layout does not name it. Rows that are not well formed are
    left out and counted.

    Raises:
        DataError: a column does not exist, or too many rows are not well formed (`are_too_many`).
    """
    table = open_delimited(path, layout, reading)
    indices = [_column(path, name, table) for name in columns]
    bad: list[Bad] = []
    rows = 0
    for block in table.blocks(indices):
        rows += len(block.lines)
        bad += block.bad
        yield from zip(block.lines, zip(*block.columns, strict=True), strict=True)
    if bad:
        reading.leave_out("rows_malformed", [row.line for row in bad])
        if are_too_many(len(bad), rows):
            raise DataError(
                f"{path}, line {bad[0].line}: {bad[0].reason}; so are {len(bad):,} of {rows + len(bad):,} rows, read "
                f"with {table.dialect.described()}; name the right ones (--delimiter, --quotes), or save the file as "
                "jsonl or parquet"
            )


def are_too_many(bad: int, rows: int) -> bool:
    """Whether so many rows of a file are not well formed, beside `rows` others, that its dialect is wrong: more than
    `MOST_BAD` of them, and more than `FEW_BAD` or one of five."""
    return bad > max(min(FEW_BAD, rows // 5), MOST_BAD * (rows + bad))


def open_delimited(path: Path, layout: Layout, reading: Reading) -> Delimited:
    """An open csv or tsv file, in the dialect of the layout; the rest is guessed.

    Raises:
        DataError: as `text_blocks`.
    """
    text = text_blocks(path, reading, encoding=layout.encoding)
    first = next(text, b"")
    dialect = detect_dialect(
        first.decode(errors="ignore").replace("\r\n", "\n"),
        tabs=suffix(path.name) == ".tsv",
        delimiter=layout.delimiter,
        quote=None if layout.quotes is None else '"' * layout.quotes,
        header=layout.header,
    )
    return opened(chain([first], text), dialect, reading.skipped)


def _column(path: Path, name: str, table: Delimited) -> int:
    if name in table.ambiguous:
        raise DataError(f"{path}: has two columns {name!r}; rename one of them")
    if name not in table.names:
        hint = "; if it has no header line, set header: false" if table.dialect.header else ""
        raise _no_column(f"{path}, line 1", name, table.names, hint)
    return table.names.index(name)


def read_parquet(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """Rows of a Parquet file, a few megabytes at a time; numbers are row numbers, from 1.

    Raises:
        DataError: the file is damaged, a column is missing or not text, or a text is longer than 8 MB.
    """
    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            names = file.schema_arrow.names
            for name in columns:
                if name not in names:
                    raise _no_column(str(path), name, names)
            refuse_ambiguous(path, columns, names)
            number, before, size = 0, reading.consumed, path.stat().st_size
            classes = class_names(file.schema_arrow)
            for batch in file.iter_batches(batch_size=_rows_at_a_time(file), columns=list(dict.fromkeys(columns))):
                batch = named(batch, classes)
                reading.text_bytes += batch.nbytes
                reading.consumed = before + size * (number + batch.num_rows) // file.metadata.num_rows
                values = [_values(path, name, batch.column(name), layout.nested, reading) for name in columns]
                for row in zip(*values, strict=True):
                    number += 1
                    if any(len(value) > LINE_BYTES for value in row if isinstance(value, str)):
                        raise too_long(path, f"row {number}")
                    yield number, row
    except (pa.ArrowException, OSError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: damaged or truncated Parquet file ({reason}); copy it again") from error


def _rows_at_a_time(file: pq.ParquetFile) -> int:
    """Number of rows with about 4 MB of data, by the average row size of the largest row group."""
    groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
    longest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return min(max(_PARQUET_BYTES // max(longest, 1), 1), _PARQUET_ROWS)


def _values(path: Path, name: str, column: pa.Array, nested: bool, reading: Reading) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if binary or (pa.types.is_nested(kind) and not nested):
        raise DataError(f"{path}: column {name!r} is {kind}, not text; write it as a string column")
    if not nested:
        column = column.cast(pa.string())
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError as error:
        if nested:
            raise DataError(f"{path}: column {name!r} has text that is not valid UTF-8; convert it") from error
        values = []
        for raw in column.cast(pa.binary()).to_pylist():
            text, bad = (None, 0) if raw is None else decode(raw)
            values.append(text)
            reading.bad_bytes += bad
            reading.bad_lines += bool(bad)
    return values


def refuse_ambiguous(path: Path, columns: Sequence[str], names: Sequence[str]) -> None:
    """Verify that the names of `columns` are unique among the `names` of a file.

    Raises:
        DataError: a name occurs twice.
    """
    counts = Counter(names)
    if twice := [name for name in columns if counts[name] > 1]:
        raise DataError(f"{path}: has two columns {twice[0]!r}; rename one of them")


def _no_column(where: str, name: str, names: Sequence[str] | dict[str, Any], more: str = "") -> DataError:
    return DataError(f"{where}: no column {name!r}{nearest(name, names)}; name the column in params.yaml{more}")


def read_workbook(path: Path, columns: Sequence[str], layout: Layout, reading: Reading) -> Iterator[Row]:
    """The rows of a sheet (`layout.member`, or the first one); numbers count the rows of the sheet, from 1.

    Raises:
        DataError: as `read_sheet`; a column does not exist.
    """
    sheet = read_sheet(path, layout.member, header=layout.header)
    for name in columns:
        if name not in sheet.names:
            raise _no_column(f"{path}, sheet {sheet.name!r}", name, sheet.names)
    indices = [sheet.names.index(name) for name in columns]
    reading.consumed += path.stat().st_size
    for number, cells in sheet.rows:
        yield number, tuple([cells[index] for index in indices])


Table = Callable[[Path, Sequence[str], Layout, Reading], Iterator[Row]]

TABLES: dict[str, Table] = {
    "jsonl": read_jsonl,
    "csv": read_csv,
    "tsv": read_csv,
    "parquet": read_parquet,
    "json": read_json,
    "workbook": read_workbook,
}


def suffix(name: str) -> str:
    """The suffix of a file name that determines its format: `.jsonl` of `A.JSONL.gz`; empty if there is none."""
    return Path(name.lower().removesuffix(".gz").removesuffix(".zst")).suffix
