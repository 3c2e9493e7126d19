"""Which files are the splits of a task, and the rows of a file whose format is guessed."""

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
#: Words in the name of a file -> split.
SPLITS: Final = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "validation", "val", "trial", "development"),
    "test": ("test", "testing", "eval"),
}
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


def split_files(path: Path) -> dict[str, Path]:
    """Split -> file, of a labelled file or a folder.

    Raises:
        DataError: there is no such file, or a folder has several files of which none is called train.
    """
    if path.is_file():
        return {"train": path}
    if not path.is_dir():
        raise DataError(
            f"{path}: does not exist; name a labelled file (csv, tsv, jsonl, json, parquet, conll) or a folder"
        )
    files = [file for file in sorted(path.iterdir()) if file.is_file() and not file.name.startswith(".")]
    files = [file for file in files if not re.match(r"(?i)(license|readme|sources?)\b", file.name)]
    found: dict[str, list[Path]] = {}
    for file in files:
        words = re.split(r"[^a-z]+", file.name.lower())
        words += [word for name in words for group in SPLITS.values() for word in group[:1] if name.endswith(word)]
        split = next((split for split, names in SPLITS.items() if {*names} & {*words}), None)
        if split is not None:
            found.setdefault(split, []).append(file)
    if "train" not in found and len(files) == 1:
        return {"train": files[0]}
    if "train" not in found:
        names = ", ".join(file.name for file in files[:5]) or "no files"
        raise DataError(f"{path}: no file is called train ({names}); name the labelled file itself, or rename it")
    twice = {split: names for split, names in found.items() if len(names) > 1}
    for split, several in twice.items():
        listed = ", ".join(file.name for file in several)
        raise DataError(f"{path}: several files may be {split} ({listed}); name one file, or keep one of them")
    return {split: found[split][0] for split in SPLITS if split in found}


def read_rows(path: Path) -> Rows:
    """The first rows of a file.

    Raises:
        DataError: the format is not recognised, or the file is damaged or empty.
    """
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
    sentences = [
        list(group) for filled, group in itertools.groupby(texts, key=lambda line: bool(line.strip())) if filled
    ]
    tagged = [[re.split(r"[\t ]+", line) for line in one if not line.startswith("#")] for one in sentences]
    tagged = [one for one in tagged if one and min(map(len, one)) >= 2]
    rows = [{"words": [cells[0] for cells in one], "tags": [cells[-1] for cells in one]} for one in tagged]
    if form == "conllu":
        rows = [{"words": [cells[1] for cells in one], "tags": [cells[3] for cells in one]} for one in tagged]
    return _filled(path, Rows(form, ["words", "tags"], rows, keys))


def _filled(path: Path, found: Rows) -> Rows:
    if not found.rows:
        raise DataError(f"{path}: holds no rows")
    return found


def _text(path: Path, *, most: int | None = ROWS) -> tuple[list[str], str]:
    """The first lines, and the encoding."""
    for encoding in ENCODINGS:
        reading = Reading()
        try:
            found = [line for _, line in itertools.islice(lines(path, reading, encoding=encoding), most)]
        except DataError:
            if encoding == ENCODINGS[-1]:
                raise
            continue
        if reading.bad_bytes or (encoding == "cp874" and not _is_thai(found)):
            continue
        return found, encoding
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
    if any(name in known for name, known in zip(first, values, strict=True)):
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
    raise DataError(f"{path}: expected a list of objects, one per row; write it so, or as JSON lines")
