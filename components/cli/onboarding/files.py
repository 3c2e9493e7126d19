"""The rows of a labelled file whose format is guessed."""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from components.core.errors import DataError
from components.data.formats.lines import Reading, lines
from components.data.formats.tables import parse_json, parse_object, suffix

#: Rows of a file that are looked at.
ROWS: Final = 5_000
#: Formats of suffixes; others are recognised by their content.
SUFFIXES: Final = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".conll": "conll",
    ".bio": "conll",
    ".conllu": "conllu",
}
ENCODINGS: Final = ("utf-8", "cp874", "latin-1")
#: Maximum number of different first words of lines that begin with a label.
_LABELS: Final = 200


@dataclass(frozen=True)
class Rows:
    """The rows of a file: its `data.tasks.<name>.format`, the columns by name, or by number without a header, and
    further keys of the task (header, delimiter, encoding)."""

    format: str
    columns: list[str]
    rows: list[dict[str, Any]]
    keys: dict[str, Any]


def read_rows(path: Path) -> Rows:
    """The first rows of a file, of a member of a JSON document (FILE#MEMBER), or of a folder of parallel files.

    Raises:
        DataError: the format is not recognised, or the file is damaged or empty.
    """
    rows = _read(path)
    if not rows.rows:
        raise DataError(f"{path}: holds no rows")
    return rows


def _read(path: Path) -> Rows:
    if path.is_dir():
        return _parallel(path)
    name, _, member = str(path).partition("#")
    if member:
        return _objects("json", json_members(Path(name))[member][:ROWS])
    form = SUFFIXES.get(suffix(path.name))
    if form == "parquet":
        batch = next(pq.ParquetFile(path).iter_batches(ROWS), None)
        return Rows("parquet", list(pq.read_schema(path).names), batch.to_pylist() if batch else [], {})
    if form == "json":
        return _of_json(path)
    texts, encoding = _text(path)
    keys = {} if encoding == "utf-8" else {"encoding": encoding}
    form = form or _sniffed(path, texts)
    if form == "jsonl":
        numbered = [(number, line) for number, line in enumerate(texts, 1) if line.strip()]
        return _objects(form, [parse_object(line, f"{path}, line {number}")[0] for number, line in numbered], keys)
    if form in ("csv", "tsv"):
        return _table(texts, form, keys)
    if form == "label-first":
        parts = (line.partition(" ") for line in texts if line)
        return Rows(form, ["label", "text"], [{"label": label, "text": rest} for label, _, rest in parts], keys)
    groups = (list(group) for filled, group in itertools.groupby(texts, key=lambda line: bool(line.strip())) if filled)
    sentences = [[re.split(r"[\t ]+", line) for line in group if not line.startswith("#")] for group in groups]
    word, tag = (1, 3) if form == "conllu" else (0, -1)
    tagged = [
        {"words": [cells[word] for cells in sentence], "tags": [cells[tag] for cells in sentence]}
        for sentence in sentences
        if sentence and min(map(len, sentence)) >= 2
    ]
    return Rows(form, ["words", "tags"], tagged, keys)


def _objects(form: str, rows: list[dict[str, Any]], keys: dict[str, Any] | None = None) -> Rows:
    return Rows(form, list(dict.fromkeys(column for row in rows for column in row)), rows, keys or {})


def _parallel(folder: Path) -> Rows:
    """Line n of every file is a value of row n."""
    files = {file.name: file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(".")}
    texts = {name: _text(file) for name, file in files.items()}
    counts = {name: len(texts_of) for name, (texts_of, _) in texts.items()}
    if len(counts) < 2 or len(set(counts.values())) > 1:
        listed = ", ".join(f"{name}: {count} lines" for name, count in counts.items()) or "no files"
        raise DataError(
            f"{folder}: is no folder of parallel files, which have one value a line and equally many lines ({listed}); "
            "name a labelled file (csv, tsv, jsonl, json, parquet, conll)"
        )
    rows = [
        dict(zip(texts, values, strict=True))
        for values in zip(*(texts_of for texts_of, _ in texts.values()), strict=True)
    ]
    encodings = {encoding for _, encoding in texts.values()} - {"utf-8"}
    return Rows("parallel", list(texts), rows, {"encoding": encodings.pop()} if encodings else {})


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


def _text(path: Path) -> tuple[list[str], str]:
    """The first lines, and the encoding."""
    for encoding in ENCODINGS:
        reading = Reading()
        try:
            first = [line for _, line in itertools.islice(lines(path, reading, encoding=encoding), ROWS)]
        except DataError:
            if encoding == ENCODINGS[-1]:
                raise
            continue
        if reading.bad_bytes or (encoding == "cp874" and not _is_thai(first)):
            continue
        return first, encoding
    raise DataError(f"{path}: the encoding is not recognised; convert the file to utf-8")


def _is_thai(texts: Sequence[str]) -> bool:
    """Whether a large share of the letters is Thai, so that it is no accident of another encoding."""
    letters = [letter for text in texts for letter in text if letter.isalpha()]
    return sum("\u0e00" <= letter <= "\u0e7f" for letter in letters) > 0.2 * len(letters)


def _sniffed(path: Path, texts: Sequence[str]) -> str:
    """The format of text lines by their content."""
    full = [line for line in texts if line.strip()]
    if full and all(line.lstrip().startswith("{") for line in full[:20]):
        return "jsonl"
    blank = len(texts) - len(full)
    cells = Counter(len(re.split(r"[\t ]+", line.strip())) for line in full if not line.startswith("#"))
    if blank > len(texts) / 100 and cells and cells.most_common(1)[0][0] in range(2, 11):
        most, count = cells.most_common(1)[0]
        if count > 0.95 * sum(cells.values()):
            return "conllu" if most == 10 else "conll"
    tabs = Counter(line.count("\t") for line in full)
    if tabs and (usual := tabs.most_common(1)[0])[0] and usual[1] > 0.9 * len(full):
        return "tsv"
    first = Counter(line.partition(" ")[0] for line in full)
    if full and len(first) <= min(_LABELS, len(full) / 2) and all(" " in line.strip() for line in full):
        return "label-first"
    raise DataError(
        f"{path}: the format is not recognised; use csv, tsv, jsonl, json, parquet or conll, with a suffix that says so"
    )


def _table(texts: Sequence[str], form: str, keys: dict[str, Any]) -> Rows:
    delimiter = "\t" if form == "tsv" else ","
    if form == "csv" and texts[0].count(";") > texts[0].count(","):
        delimiter = keys["delimiter"] = ";"
    rows = [f"{line}\n" for line in texts]
    if form == "csv":
        table = list(csv.reader(rows, delimiter=delimiter))
    else:
        table = list(csv.reader(rows, delimiter=delimiter, quoting=csv.QUOTE_NONE))
    table = [row for row in table if row]
    first, rest = (table[0], table[1:]) if table else ([], [])
    if _is_header(first, rest):
        columns = first
    else:
        keys, columns, rest = keys | {"header": False}, [str(number) for number in range(len(first))], table
    return Rows(form, columns, [dict(zip(columns, row, strict=False)) for row in rest], keys)


def _is_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Whether the first line names columns: different short names, none of which is a value of its column or a number.
    A line of text is longer than a name."""
    if not rest:
        return True
    if len(set(first)) < len(first) or any(not name.strip() or len(name) > 60 or _is_number(name) for name in first):
        return False
    values = [{row[column] for row in rest if len(row) > column} for column in range(len(first))]
    if any(name in column_values for name, column_values in zip(first, values, strict=True)):
        return False
    return max(len(name.split()) for name in first) <= 4


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d+(\.\d+)?", text.strip()) is not None


def _of_json(path: Path) -> Rows:
    content = parse_json(path, Reading())
    members = ", ".join(list(content)[:9]) if isinstance(content, dict) else ""
    if members and isinstance(content.get("data"), list) and "paragraphs" in str(content["data"])[:500_000]:
        return Rows("squad", ["question", "context", "answers"], [{"question": "", "context": "", "answers": []}], {})
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        return replace(_objects("json", content), rows=content[:ROWS])
    raise DataError(
        f"{path}: expected a list of objects, one per row, or lists of rows by split (train, dev, test)"
        + (f"; found the members {members}" if members else "")
        + "; write it so, or as JSON lines"
    )
