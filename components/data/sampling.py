"""A sample of the rows of a labelled file whose format is guessed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from components.core.errors import DataError
from components.data.formats.annotations.tables import READERS
from components.data.formats.kinds import form_of
from components.data.formats.lines import Reading, lines
from components.data.formats.rows import FORMATS, open_rows
from components.data.formats.rows import Rows as OpenRows
from components.data.formats.tables import PLAIN, Layout, parse_json
from components.settings.detection import detected

#: Minimum number of rows that are looked at, evenly spaced over the whole file.
ROWS: Final = 5_000
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Rows:
    """A sample of the rows of a file.

    Attributes:
        format: `data.tasks.<name>.format`.
        columns: by name, or by number without a header.
        rows: the sample.
        read: how the file was read, in words.
        kind: of the task, where the format says it.
    """

    format: str
    columns: list[str]
    rows: list[dict[str, Any]]
    read: list[str] = field(default_factory=list)
    kind: str | None = None


def read_rows(path: Path, layout: Layout = PLAIN) -> Rows:
    """A sample of the rows of a file, of a member of a JSON document or sheet of a workbook (FILE#NAME), or of a folder
    of parallel files.

    Args:
        path: of the file.
        layout: how it is read; the rest is guessed.

    Raises:
        DataError: the format is not recognised, or the file is damaged or empty.
    """
    rows = _read(path, layout)
    if not rows.rows:
        raise DataError(f"{path}: holds no rows")
    return rows


def sampled(rows: Iterable[_Row]) -> list[_Row]:
    """At least `ROWS` of the rows, if there are as many: every row, every second one, every fourth one and so on."""
    kept: list[_Row] = []
    step = 1
    for number, row in enumerate(rows):
        if number % step == 0:
            kept.append(row)
            if len(kept) == 2 * ROWS:
                kept, step = kept[::2], 2 * step
    return kept


def _read(path: Path, layout: Layout) -> Rows:
    if path.is_dir():
        return _parallel(path, layout)
    form = form_of(Path(str(path).partition("#")[0]))
    if form == "json" and "#" not in str(path) and _is_squad(path):
        return Rows("squad", ["question", "context", "answers"], [{"question": "", "context": "", "answers": []}])
    if form in ("jsonl", "json") and (annotated := _annotated(path)) is not None:
        return annotated
    if form in FORMATS:
        bad: list[DataError] = []
        table = open_rows(path, layout=layout, rejected=lambda error, row: bad.append(error))
        rows = sampled(row for _, row in table.rows)
        names = table.names if table.fixed else list(dict.fromkeys(name for row in rows for name in row))
        # A nameless column without values is none.
        names = [name for name in names if not NAMELESS.fullmatch(name) or any(row.get(name) for row in rows)]
        return Rows(form, names, rows, list(reading_in_words(table, bad)))
    texts = [line for _, line in lines(path, Reading(), encoding=layout.encoding)]
    if form == "label-first":
        parts = (line.partition(" ") for line in texts if line)
        return Rows(form, ["label", "text"], sampled({"label": label, "text": rest} for label, _, rest in parts))
    groups = (list(group) for filled, group in itertools.groupby(texts, key=lambda line: bool(line.strip())) if filled)
    sentences = [[re.split(r"[\t ]+", line) for line in group if not line.startswith("#")] for group in groups]
    word, tag = (1, 3) if form == "conllu" else (0, -1)
    tagged = [
        {"words": [cells[word] for cells in sentence], "tags": [cells[tag] for cells in sentence]}
        for sentence in sentences
        if sentence and min(map(len, sentence)) >= 2 and not sentence[0][0].startswith("-DOCSTART-")
    ]
    return Rows(form, ["words", "tags"], tagged)


def _annotated(path: Path) -> Rows | None:
    """A sample of an export of an annotation tool; None for other files, and for labels that a table holds, too."""
    form = detected(path, kind="tagging")
    if form not in READERS:
        return None
    reading = Reading()
    records = sampled(READERS[form](path, reading))
    if any(any(record.spans.values()) for record in records):
        kind = "tagging"
    elif form == "doccano" and not any(isinstance(record.data.get("cats"), dict) for record in records):
        return None
    else:
        several = any(isinstance(value, list) and len(value) > 1 for each in records for value in each.chosen.values())
        kind = "multilabel" if several else "classification"
    rows = [{**record.data, **record.chosen} for record in records]
    left_out = [f"{count} record(s) are left out ({reason})" for reason, count in reading.skipped.items()]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return Rows(form, columns, rows, [f"an export of {form}", *left_out], kind)


#: Name of a column without one.
NAMELESS: Final = re.compile(r"column \d+")


def reading_in_words(table: OpenRows, bad: Sequence[DataError]) -> Iterator[str]:
    """How a table was read, and what was left out."""
    encoding = table.reading.encoding
    read = [f"encoding {encoding.name}", table.described]
    if table.described and table.fixed:
        read.append(f"the first row is {'' if table.header else 'not '}the header")
    yield "; ".join(filter(None, read))
    if encoding.example:
        others = f" (or {', '.join(encoding.others)}; --encoding)" if encoding.others else " (--encoding)"
        yield f"the encoding is guessed{others}, as in: {encoding.example}"
    if table.reading.bad_lines:
        places = ", ".join(map(str, table.reading.first_bad))
        yield f"warning: {table.reading.bad_lines} line(s) have bytes that are not {encoding.name}: line {places}"
    if bad:
        yield f"warning: {len(bad)} row(s) cannot be read and are left out, the first: {bad[0]}"
    if repeated := table.reading.skipped["rows_repeat_header"]:
        yield f"{repeated} row(s) repeat the header and are left out"


def _parallel(folder: Path, layout: Layout) -> Rows:
    """Line n of every file is a value of row n."""
    files = {file.name: file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(".")}
    texts = {
        name: [line for _, line in lines(file, Reading(), encoding=layout.encoding)] for name, file in files.items()
    }
    counts = {name: len(values) for name, values in texts.items()}
    if len(counts) < 2 or len(set(counts.values())) > 1:
        listed = ", ".join(f"{name}: {count} lines" for name, count in counts.items()) or "no files"
        raise DataError(
            f"{folder}: is no folder of parallel files, which have one value a line and equally many lines ({listed}); "
            "name a labelled file (csv, tsv, jsonl, json, parquet, conll)"
        )
    rows = (dict(zip(texts, values, strict=True)) for values in zip(*texts.values(), strict=True))
    return Rows("parallel", list(texts), sampled(rows))


def json_members(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The members of a JSON document that are lists of rows; a row that is a list has the columns "0", "1", ...

    Raises:
        DataError: the file is damaged.
    """
    content = parse_json(path, Reading())
    members = {}
    for name, rows in content.items() if isinstance(content, dict) else ():
        if isinstance(rows, list) and rows and all(isinstance(row, list) and len(row) > 1 for row in rows):
            rows = [{str(column): value for column, value in enumerate(row)} for row in rows]
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            members[name] = rows
    return members


def _is_squad(path: Path) -> bool:
    content = parse_json(path, Reading())
    data = content.get("data") if isinstance(content, dict) else None
    return isinstance(data, list) and "paragraphs" in str(data)[:500_000]
