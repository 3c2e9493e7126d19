"""Removal of records from raw files: all other records keep their bytes. Where the records of a text file begin says
the reader of its format. The file is replaced atomically and gets a new inode, so that hard links, such as objects in
DVC's cache, keep the old content."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.artifacts import partial_path, sync
from components.core.errors import DataError
from components.data.formats.kinds import are_labels, form_of
from components.data.formats.lines import CODECS, Reading
from components.data.formats.parquets import open_table
from components.data.formats.plain import FASTTEXT, parallel_files
from components.data.formats.rows import open_rows
from components.data.formats.tables import RowError
from components.data.ingestion.readers import text_documents
from components.data.matching import Texts, columns, held_rows
from components.settings.formats import by_name, suffix_of

#: (first line from 1, values as its reader gives them, None: by `_values`) of each record.
Records = Iterator[tuple[int, Any]]
#: First line of a record, and of what follows it.
Range = tuple[int, int]
#: All labels of a line but the last one.
_FASTTEXT = re.compile(rf"^(?:{FASTTEXT}\S+\s+)+(?={FASTTEXT})")


def remove_records(path: Path, texts: Texts) -> int:
    """Remove the records of a file that hold one of the texts; a file without such records is not touched.

    csv and tsv (rows), jsonl (lines), json (innermost objects of lists), txt (lines of a file without empty lines that
    hold a text, else documents as in ingestion), conll and conllu (sentences), parquet and arrow (rows), and other text
    (lines); text also with .gz or .zst.
    A line of parallel files is removed from all of them. Files are parallel if they have the same number of lines and
    are in one folder without a suffix, or are txt files of one pattern (`train_*.txt`), one of which holds labels.

    A file that would have no record left is deleted, except for arrow, which the list of files of a data set names.

    Returns:
        The number of records removed.

    Raises:
        DataError: the file is damaged.
        OSError: it cannot be written.
    """
    kind = suffix_of(path.name)
    if not path.exists():
        return 0  # it went with the file whose lines belong to its own
    try:
        if by_name(path.name) == "workbook" or path.suffix.lower() == ".zip":
            raise DataError(f"{path}: workbooks and zip archives are not edited; remove the text by hand")
        if kind in (".parquet", ".arrow"):
            return _rewrite_table(path, texts)
        if kind == ".json":
            with suppress(json.JSONDecodeError):  # it holds lines of JSON
                return _rewrite_json(path, texts)
        held = {file: _held(file, texts) for file in _aligned(path)}
        ranges = set[Range]().union(*held.values())
        gone = {line for first, end in ranges for line in range(first, end)}
        # Files that hold a text are last, so that one that was killed here finds it again.
        for file in sorted(held, key=lambda file: bool(held[file])) if gone else ():
            _rewrite(file, (raw for line, raw in enumerate(_lines(file), 1) if line not in gone))
        return len(ranges)
    except (pa.ArrowException, UnicodeDecodeError, csv.Error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(f"{path}: cannot be edited ({error}); remove the text by hand") from error


def _held(path: Path, texts: Texts) -> set[Range]:
    """The records that hold one of the texts."""
    held: set[Range] = set()
    if suffix_of(path.name) == ".txt":
        blocks = re.split(r"\n\s*\n\s*\n", b"".join(_lines(path)).decode(errors="replace"))
        if any(re.search("[^\n]\f", block) and texts.may_be_in(block) for block in blocks):
            raise DataError(f"{path}: a page begins inside of a line; remove the text by hand")
    for records in _divisions(path):
        lines, line = _lines(path), 1
        for (first, values), (following, _) in pairwise(chain(records, [(None, None)])):
            count = None if following is None else following - line
            raw = [part.decode(errors="replace") for part in islice(lines, count)][(first or 1) - line :]
            line = (first or 1) + len(raw)
            if texts.may_be_in("".join(raw)) and (texts.in_values(_values(raw) if values is None else values)):
                held.add((line - len(raw), line))
        if held:
            break
    return held


def _divisions(path: Path) -> Iterator[Records]:
    """The records of a text file; where it may be divided in two ways, the first that finds a text counts."""
    kind = suffix_of(path.name)
    form = by_name(path.name)
    if kind == ".txt":
        with suppress(DataError):  # it is a table only if it has tabs in every line
            form = "tsv" if form_of(path) == "tsv" else form
    if form in ("csv", "tsv"):
        yield _rows(path)
        return
    blank = [not raw.strip() for raw in _lines(path)]
    if form in ("conll", "conllu"):
        yield ((line, None) for line, begins in enumerate([True, *blank[:-1]], 1) if begins)
    # A long text is in the document of its line, too, which may be the whole file.
    elif kind != ".txt" or (len(blank) > 1 and not any(blank)):
        yield ((line, None) for line in range(1, len(blank) + 1))
    if form == "" and kind == ".txt":
        yield text_documents(path, Reading())


def _rows(path: Path) -> Records:
    """The rows of a table, also those that are not well formed."""
    bad: list[tuple[int, Any]] = []

    def reject(error: DataError, row: Any) -> None:
        assert isinstance(error, RowError)
        bad.append((error.line, row))

    table = open_rows(path, rejected=reject, form="csv")
    if (encoding := table.reading.encoding.name).startswith(("utf-16", "utf-32")):
        raise DataError(f"a table in {encoding} is not edited; convert it to UTF-8")
    for record in table.numbered:
        yield from bad
        bad.clear()
        yield record
    yield from bad


def _values(lines: list[str]) -> Any:
    """The values of a record: JSON; a line, its cells and the text after its label; the columns and comments of a
    sentence."""
    line, *others = (line.rstrip("\r\n") for line in lines)
    if any(others):
        comments = [line.partition("=")[2] for line in lines if line.startswith("# ")]
        return dict(enumerate([*columns(lines), *comments]))
    try:
        return json.loads(line)
    except ValueError:
        return dict(enumerate([line, _FASTTEXT.sub("", line).partition(" ")[2], *line.split("\t")]))


def _rewrite(path: Path, lines: Iterable[bytes]) -> None:
    """Replace the content of a text file."""
    empty = True
    with partial_path(path) as partial:
        with pa.output_stream(str(partial), compression=_codec(path)) as target:
            for raw in lines:
                target.write(raw)
                empty = empty and not raw.strip()
        _replace(partial, path, empty=empty)


def _rewrite_table(path: Path, texts: Texts) -> int:
    """The same for a Parquet file or an Arrow stream; the schema with its metadata and the compression are kept."""
    removed, left = 0, 0
    with partial_path(path) as partial:
        with (
            open_table(path) as table,
            (
                pq.ParquetWriter(partial, table.schema, compression=table.compression)
                if table.compression
                else pa.ipc.new_stream(str(partial), table.schema)
            ) as writer,
        ):
            for batch in table.batches:
                held = held_rows(batch, texts)
                removed, left = removed + sum(held), left + len(held) - sum(held)
                writer.write_batch(batch.filter(pa.array([not flag for flag in held])))
        if removed:
            _replace(partial, path, empty=not left and table.compression is not None)
    return removed


def _rewrite_json(path: Path, texts: Texts) -> int:
    """The innermost item that holds the text is removed, not the ones around it; a list of the values of a row, such as
    `[text, label]`, is removed whole."""
    removed = 0

    def filtered(value: Any) -> Any:
        nonlocal removed
        if isinstance(value, dict):
            return {key: filtered(inner) for key, inner in value.items()}
        if not isinstance(value, list):
            return value
        rows = [isinstance(item, list) and any(isinstance(part, str) for part in item) for item in value]
        items = [item if is_row else filtered(item) for item, is_row in zip(value, rows, strict=True)]
        kept = [item for item in items if not texts.in_values(item)]
        removed += len(items) - len(kept)
        return kept

    value = filtered(json.loads(b"".join(_lines(path))))
    if removed:
        _rewrite(path, [json.dumps(value, ensure_ascii=False).encode() + b"\n"] if value != [] else [])
    return removed


def _replace(partial: Path, path: Path, *, empty: bool) -> None:
    if empty:
        path.unlink()
        return
    partial.chmod(path.stat().st_mode & 0o777 | 0o200)
    sync(partial)
    partial.replace(path)


def _codec(path: Path) -> str | None:
    return CODECS.get(path.suffix.lower())


def _lines(path: Path) -> Iterator[bytes]:
    with io.BufferedReader(pa.input_stream(str(path), compression=_codec(path))) as source:
        yield from source


def _aligned(path: Path) -> list[Path]:
    """The files parallel to a file, itself included."""
    of_text = path.name.endswith(".txt")
    if suffix_of(path.name) and not of_text:
        return [path]
    pattern = re.sub(r"[a-zA-Z0-9]+(\.txt)$", r"*\1", path.name)
    files = {}
    for file in parallel_files(path.with_name(pattern) if of_text else path.parent).values():
        if of_text or not suffix_of(file.name):
            files[file] = [raw.decode(errors="replace").strip() for raw in _lines(file)]
    if path not in files:  # a hidden file, or a name that is a pattern
        return [path]
    aligned = [file for file, lines in files.items() if len(lines) == len(files[path])]
    labelled = not of_text or (len(aligned) > 1 and any(are_labels(files[file]) for file in aligned))
    return aligned if labelled else [path]
