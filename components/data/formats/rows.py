"""Any table as a stream of complete rows: every column, in file order, with the place of the row.

The readers of `components.data.formats.tables` give the named columns to training; here, a row has all of them, for
programs that look at a file, add columns to it or predict it. In csv and tsv, the apostrophe before a text that looks
like a formula is removed (`components.data.formats.delimited`).

A row that is not well formed is an error, or with `rejected` a call of that function, and the next row follows.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import merge
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.errors import DataError, nearest
from components.data.formats.annotations.records import Annotated, control_of
from components.data.formats.annotations.tables import READERS as ANNOTATED
from components.data.formats.annotations.tables import UNITS
from components.data.formats.class_names import class_names, named
from components.data.formats.conll import Sentence, read_conll, read_conllu
from components.data.formats.delimited import Bad, restored
from components.data.formats.kinds import form_of
from components.data.formats.lines import Reading, lines
from components.data.formats.plain import parallel_files, read_classes, read_label_first, read_parallel, read_texts
from components.data.formats.squad import is_squad, read_squad
from components.data.formats.tables import PLAIN, Layout, Table, json_rows, open_delimited, parse_object
from components.data.formats.words import covered, words_of
from components.data.formats.workbook import read_sheet
from components.settings.detection import detected

Row = dict[str, Any]
#: Called with the error of a bad row, whose message begins with its place, and the row as far as it is readable.
Rejected = Callable[[DataError, Any], None]
#: Characters of a line that cannot be parsed which are passed on.
SHOWN = 2000
# Rows of a Parquet file that are decoded at once.
_PARQUET_ROWS = 512


@dataclass(frozen=True)
class Rows:
    """An open file.

    Attributes:
        names: its columns; of jsonl, the columns of the first row.
        fixed: whether every row has these columns.
        schema: types of the columns; None if the format has none.
        rows: (place for messages, row) in file order.
        reading: counts of what was read so far, and the encoding.
        described: the dialect in words; empty if the format has none.
        header: whether the first row of a delimited file or sheet names the columns.
        ambiguous: names that several columns of a delimited file have; the second is called `NAME (2)`.
        form: format, as of `data.tasks.<name>.format`.
        kind: of the task, where the format says it.
    """

    names: list[str]
    fixed: bool
    schema: pa.Schema | None
    rows: Iterator[tuple[str, Row]]
    reading: Reading
    described: str = ""
    header: bool = True
    ambiguous: frozenset[str] = frozenset()
    form: str = ""
    kind: str | None = None

    def refuse_ambiguous(self, path: object, names: Iterable[str]) -> None:
        if twice := sorted(self.ambiguous.intersection(names)):
            raise DataError(f"{path}: has two columns {twice[0]!r}; rename one of them")


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
    form = form_of(Path(name))
    given = Layout(**{**vars(layout), "member": member or layout.member, "nested": True})
    if form in ("json", "jsonl") and not member:
        tool = detected(Path(name), kind="tagging")
        if tool in ANNOTATED and (annotated := _open_annotated(Path(name), tool)) is not None:
            return annotated
        form = "squad" if form == "json" and is_squad(Path(name)) else form
    return replace(_OPENERS[form](Path(name), given, rejected or _raise), form=form)


def _raise(error: DataError, row: Any) -> None:
    raise error


def _open_delimited(path: Path, layout: Layout, rejected: Rejected) -> Rows:
    reading = Reading()
    table = open_delimited(path, layout, reading)
    names = list(map(restored, table.names))

    def rows() -> Iterator[tuple[str, Row]]:
        for block in table.blocks():
            good: Iterator[tuple[int, Any]] = zip(block.lines, zip(*block.columns, strict=True), strict=True)
            bad = ((row.line, row) for row in block.bad)
            for line, row in merge(good, bad, key=itemgetter(0)):
                if isinstance(row, Bad):
                    rejected(DataError(f"{path}, line {line}: {row.reason}"), row.text[:SHOWN])
                else:
                    yield f"{path}, line {line}", dict(zip(names, map(restored, row), strict=True))

    described, header = table.dialect.described(), table.dialect.header
    return Rows(names, True, None, rows(), reading, described, header, frozenset(table.ambiguous))


def _open_jsonl(path: Path, layout: Layout, rejected: Rejected) -> Rows:
    reading, refused = Reading(loads=f"[json.loads(line) for line in open({str(path)!r})]"), 0

    def rows() -> Iterator[tuple[str, Row]]:
        nonlocal refused
        for number, line in lines(path, reading, encoding=layout.encoding):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                row, _ = parse_object(line, where)
            except DataError as error:
                refused += 1
                rejected(error, line[:SHOWN])
            else:
                yield where, row

    everything = rows()
    first = next(everything, None)
    if first is None:
        raise DataError(f"{path}: " + ("no line can be read as a row" if refused else "is empty"))
    return Rows(list(first[1]), False, None, chain([first], everything), reading)


def _open_json(path: Path, layout: Layout, rejected: Rejected) -> Rows:
    reading = Reading()
    rows = list(json_rows(path, layout, reading))
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    placed = ((f"{path}, row {number}", row) for number, row in rows)
    return Rows(names, False, None, placed, reading, reading.layout and f"layout: {reading.layout}")


def _open_workbook(path: Path, layout: Layout, rejected: Rejected) -> Rows:
    sheet = read_sheet(path, layout.member, header=layout.header)
    rows = (
        (f"{path}, sheet {sheet.name!r}, row {number}", dict(zip(sheet.names, values, strict=True)))
        for number, values in sheet.rows
    )
    return Rows(sheet.names, True, None, rows, Reading(), sheet.described(), sheet.header)


def _open_parquet(path: Path, layout: Layout, rejected: Rejected) -> Rows:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not a complete parquet file ({error})") from error
    names = file.schema_arrow.names
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"{path}: has two columns {twice!r}; rename one of them")

    classes = class_names(file.schema_arrow)
    schema = named(pa.RecordBatch.from_pylist([], schema=file.schema_arrow), classes).schema

    def rows() -> Iterator[tuple[str, Row]]:
        number = 0
        try:
            with file:
                for batch in file.iter_batches(_PARQUET_ROWS):
                    for row in named(batch, classes).to_pylist():
                        number += 1
                        yield f"{path}, row {number}", row
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, after row {number}: text that is not UTF-8; write the file again") from error
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{path}: damaged ({error})") from error

    return Rows(names, True, schema, rows(), Reading())


def _open_annotated(path: Path, tool: str) -> Rows | None:
    """The records of an export of an annotation tool; None of rows that a table holds as well."""
    reading = Reading()
    records = list(ANNOTATED[tool](path, reading))
    tagged = any(any(record.spans.values()) for record in records)
    if not tagged and tool == "doccano" and not any(isinstance(record.data.get("cats"), dict) for record in records):
        return None
    several = any(isinstance(value, list) and len(value) > 1 for each in records for value in each.chosen.values())
    kind = "tagging" if tagged else "multilabel" if several else "classification"
    rows = []
    for record in records:
        where = f"{path}, {UNITS[tool]} {record.number}"
        reading.skipped.update(record.ignored)
        rows.append((where, {**record.data, **(_tagged(record, where) if tagged else record.chosen)}))
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    return Rows(names, False, None, iter(rows), reading, f"an export of {tool}", form=tool, kind=kind)


def _tagged(record: Annotated, where: str) -> Row:
    text = record.data.get("text")
    if not isinstance(text, str):
        raise DataError(f"{where}: no column 'text'{nearest('text', list(record.data))}; its spans cannot be read")
    bounds = record.tokens or words_of(text)
    spans = control_of(record.spans, None, where, "tags") or ()
    tags, _ = covered(bounds, ((span.start, span.end, span.label) for span in spans))
    return {"words": [text[start:end] for start, end in bounds], "tags": tags}


def _open_sentences(path: Path, read: Callable[..., Iterator[Sentence]], **given: Any) -> Rows:
    reading = Reading()
    sentences = read(path, reading, **given)
    rows = ((f"{path}, line {each.line}", {"words": each.words, "tags": each.tags}) for each in sentences)
    return Rows(["words", "tags"], True, None, rows, reading, kind="tagging")


def _open_squad(path: Path, layout: Layout, rejected: Rejected) -> Rows:
    reading = Reading()
    rows = (
        (
            f"{path}, question {each.id}",
            {
                "id": each.id,
                "title": each.title,
                "question": each.question,
                "context": each.context,
                "answers": {
                    "text": [text for _, text in each.answers],
                    "answer_start": [start for start, _ in each.answers],
                },
            },
        )
        for each in read_squad(path, reading)
    )
    return Rows(["id", "title", "question", "context", "answers"], True, None, rows, reading, kind="questions")


def _open_columns(
    path: Path, read: Table, names: list[str], layout: Layout, *, unit: str = "line", kind: str | None = None
) -> Rows:
    """The rows of a format whose columns are not named in it."""
    reading = Reading()
    rows = (
        (f"{path}, {unit} {number}", dict(zip(names, values, strict=True)))
        for number, values in read(path, names, layout, reading)
    )
    return Rows(names, True, None, rows, reading, kind=kind)


_LABEL_FIRST: Final = ["label", "text"]
#: Format -> opener.
_OPENERS: dict[str, Callable[[Path, Layout, Rejected], Rows]] = {
    "csv": _open_delimited,
    "tsv": _open_delimited,
    "jsonl": _open_jsonl,
    "json": _open_json,
    "parquet": _open_parquet,
    "workbook": _open_workbook,
    "conll": lambda path, layout, _: _open_sentences(
        path, read_conll, delimiter=layout.delimiter, encoding=layout.encoding
    ),
    "conllu": lambda path, layout, _: _open_sentences(path, read_conllu),
    "squad": _open_squad,
    "parallel": lambda path, layout, _: _open_columns(path, read_parallel, list(parallel_files(path)), layout),
    "label-first": lambda path, layout, _: _open_columns(path, read_label_first, _LABEL_FIRST, layout),
    "texts": lambda path, layout, _: _open_columns(path, read_texts, ["text"], layout),
    "classes": lambda path, layout, _: _open_columns(
        path, read_classes, _LABEL_FIRST, layout, unit="text", kind="classification"
    ),
}
