"""The rows of a labelled file whose format is guessed."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from components.errors import DataError
from components.formats.lines import Reading, lines

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
    """The rows of a file.

    Attributes:
        format: as of `data.tasks.<name>.format`.
        columns: names, or numbers without a header.
        rows: column -> value.
        keys: further keys of the task: header, delimiter, encoding.
    """

    format: str
    columns: list[str]
    rows: list[dict[str, Any]]
    keys: dict[str, Any]


def suffix_of(path: Path) -> str:
    """The suffix without compression, in lower case."""
    return Path(path.name.lower().removesuffix(".gz").removesuffix(".zst")).suffix


def read_rows(path: Path) -> Rows:
    """The first rows of a file, of a member of a JSON document (FILE#MEMBER), or of a folder of parallel files.

    Raises:
        DataError: the format is not recognised, or the file is damaged or empty.
    """
    if path.is_dir():
        return _filled(path, _parallel(path))
    name, _, member = str(path).partition("#")
    if member:
        rows = json_members(Path(name))[member][:ROWS]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        return _filled(path, Rows("json", columns, rows, {}))
    suffix = suffix_of(path)
    form = SUFFIXES.get(suffix)
    if form == "parquet":
        batches = pq.ParquetFile(path).iter_batches(ROWS)
        rows = next(batches).to_pylist() if pq.ParquetFile(path).metadata.num_rows else []
        return _filled(path, Rows("parquet", list(pq.read_schema(path).names), rows, {}))
    texts, encoding = _text(path)
    keys = {} if encoding == "utf-8" else {"encoding": encoding}
    if form == "json":
        return _filled(path, _of_json(path, "\n".join(_text(path, most=None)[0])))
    form = form or _sniffed(path, texts)
    if form == "jsonl":
        try:
            rows = [json.loads(line) for line in texts if line.strip()]
        except ValueError as error:
            raise DataError(f"{path}: not JSON lines ({error}); correct the line") from error
        if not all(isinstance(row, dict) for row in rows):
            raise DataError(f"{path}: a line is not an object; write one object with columns per line")
        return _filled(path, Rows(form, list(dict.fromkeys(key for row in rows for key in row)), rows, keys))
    if form in ("csv", "tsv"):
        return _filled(path, _table(texts, form, keys))
    if form == "label-first":
        rows = [{"label": label, "text": rest} for label, _, rest in (line.partition(" ") for line in texts if line)]
        return _filled(path, Rows(form, ["label", "text"], rows, keys))
    groups = (list(group) for filled, group in itertools.groupby(texts, key=lambda line: bool(line.strip())) if filled)
    sentences = [[re.split(r"[\t ]+", line) for line in group if not line.startswith("#")] for group in groups]
    word, tag = (1, 3) if form == "conllu" else (0, -1)
    rows = [
        {"words": [cells[word] for cells in sentence], "tags": [cells[tag] for cells in sentence]}
        for sentence in sentences
        if sentence and min(map(len, sentence)) >= 2
    ]
    return _filled(path, Rows(form, ["words", "tags"], rows, keys))


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
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not JSON ({error}); JSON lines have the suffix .jsonl") from error
    members = {}
    for name, rows in content.items() if isinstance(content, dict) else ():
        if isinstance(rows, list) and rows and all(isinstance(row, list) and len(row) > 1 for row in rows):
            rows = [{str(column): value for column, value in enumerate(row)} for row in rows]
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            members[name] = rows
    return members


def _filled(path: Path, rows: Rows) -> Rows:
    if not rows.rows:
        raise DataError(f"{path}: holds no rows")
    return rows


def _text(path: Path, *, most: int | None = ROWS) -> tuple[list[str], str]:
    """The first lines, and the encoding."""
    for encoding in ENCODINGS:
        reading = Reading()
        try:
            first = [line for _, line in itertools.islice(lines(path, reading, encoding=encoding), most)]
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


def _of_json(path: Path, text: str) -> Rows:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error}); JSON lines have the suffix .jsonl") from error
    if (
        isinstance(content, dict)
        and isinstance(content.get("data"), list)
        and "paragraphs" in str(content["data"])[:500_000]
    ):
        return Rows("squad", ["question", "context", "answers"], [{"question": "", "context": "", "answers": []}], {})
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        return Rows("json", list(dict.fromkeys(key for row in content for key in row)), content[:ROWS], {})
    members = ", ".join(list(content)[:9]) if isinstance(content, dict) else ""
    raise DataError(
        f"{path}: expected a list of objects, one per row, or lists of rows by split (train, dev, test)"
        + (f"; found the members {members}" if members else "")
        + "; write it so, or as JSON lines"
    )
