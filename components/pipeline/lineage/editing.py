"""Removal of records from raw files: what the reader of the format reads but those records is written again, with the
same values, in the same encoding. The file is replaced atomically and gets a new inode, so that hard links, such as
objects in DVC's cache, keep the old content."""

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
from components.data.formats.jsontables import parse_json
from components.data.formats.kinds import are_labels, form_of
from components.data.formats.lines import CODECS, Reading, text_blocks
from components.data.formats.parquets import open_table
from components.data.formats.plain import parallel_files
from components.data.formats.rows import open_rows
from components.data.ingestion.readers import text_documents
from components.data.matching import Texts, held_rows, values_of
from components.settings.formats import by_name, suffix_of

#: (first line from 1, values as its reader gives them, or None) of each record.
Records = Iterator[tuple[int, Any]]
#: First line of a record, and of what follows it.
Range = tuple[int, int]


def remove_records(path: Path, texts: Texts) -> int:
    """Remove the records of a file that hold one of the texts; a file without such records is not touched.

    csv and tsv (rows), jsonl (lines), json (innermost objects of lists, or if none holds a text, the rows as they are
    read), txt (lines of a file without empty lines that hold a text, else documents as in ingestion), conll and conllu
    (sentences), parquet and arrow (rows), and other text (lines); text also with .gz or .zst.
    A line of parallel files is removed from all of them. Files are parallel if they have the same number of lines and
    are in one folder without a suffix, or are txt files of one pattern (`train_*.txt`), one of which holds labels.

    A file that would have no record left is deleted, except for arrow, which the list of files of a data set names.

    Returns:
        The number of records removed.

    Raises:
        DataError: the file is damaged.
        OSError: it cannot be written.
    """
    if not path.exists():
        return 0  # it went with the file whose lines belong to its own
    form = by_name(path.name)
    if suffix_of(path.name) in ("", ".txt", ".json"):
        with suppress(DataError):  # the name says nothing, or is not what the program has written
            form = guessed if (guessed := form_of(path)) in ("tsv", "jsonl", "label-first") else form
    try:
        if form == "workbook" or path.suffix.lower() == ".zip":
            raise DataError(f"{path}: workbooks and zip archives are not edited; remove the text by hand")
        if form in ("parquet", "datasets"):
            return _rewrite_table(path, texts)
        if form == "json":
            return _rewrite_json(path, texts)
        readings = {file: Reading() for file in _aligned(path)}
        form = form if len(readings) == 1 else ""
        held = {file: _held(file, form, texts, reading) for file, reading in readings.items()}
        ranges = set[Range]().union(*held.values())
        gone = {line for first, end in ranges for line in range(first, end)}
        # Files that hold a text are last, so that one that was killed here finds it again.
        for file in sorted(held, key=lambda file: bool(held[file])) if gone else ():
            kept = (text for line, text in enumerate(_lines(file), 1) if line not in gone)
            _rewrite(file, kept, readings[file])
        return len(ranges)
    except pa.ArrowException as error:
        raise DataError(f"{path}: cannot be edited ({error}); remove the text by hand") from error


def _held(path: Path, form: str, texts: Texts, reading: Reading) -> set[Range]:
    """The records that hold one of the texts."""
    held = set[Range]()
    if suffix_of(path.name) == ".txt":
        for block in re.split(r"\n\s*\n\s*\n", "".join(_lines(path))):
            if re.search("[^\n]\f", block) and texts.may_be_in(block):
                raise DataError(f"{path}: a page begins inside of a line; remove the text by hand")
    for records in _divisions(path, form):
        lines, line = _lines(path, reading), 1
        for (first, values), (following, _) in pairwise(chain(records, [(0, None)])):
            record = [*islice(lines, following - line if following else None)][first - line :]
            line = first + len(record)
            if texts.may_be_in("".join(record)) and texts.in_values([values_of(record), values]):
                held.add((line - len(record), line))
        if held:
            break
    return held


def _divisions(path: Path, form: str) -> Iterator[Records]:
    """The records of a text file; where it may be divided in two ways, the first that finds a text counts."""
    if form in ("csv", "tsv", "label-first"):
        yield _rows(path, form)
        return
    blank = [not line.strip() for line in _lines(path)]
    is_text = not form and suffix_of(path.name) == ".txt"
    if form in ("conll", "conllu"):
        yield ((line, None) for line, begins in enumerate([True, *blank[:-1]], 1) if begins)
    # A long text is in the document of its line, too, which may be the whole file.
    elif not is_text or (len(blank) > 1 and not any(blank)):
        yield ((line, None) for line in range(1, len(blank) + 1))
    if is_text:
        yield text_documents(path, Reading())


def _rows(path: Path, form: str) -> Records:
    """The rows of a file, also those that are not well formed."""
    bad: list[tuple[int, Any]] = []
    table = open_rows(path, rejected=lambda error, row: bad.append((getattr(error, "line", 1), row)), form=form)
    for record in table.numbered:
        yield from bad
        bad.clear()
        yield record
    yield from bad


def _rewrite(path: Path, lines: Iterable[str], reading: Reading) -> None:
    """Replace the content of a text file. `reading`: of the present one."""
    empty = True
    with partial_path(path) as partial:
        with (
            pa.output_stream(str(partial), compression=CODECS.get(path.suffix.lower())) as raw,
            io.TextIOWrapper(raw, reading.encoding.name, newline="") as target,
        ):
            for line in lines:
                target.write(line)
                empty = empty and not line.strip()
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

    reading = Reading()
    value = filtered(parse_json(path, reading))
    with suppress(DataError):  # it is no list of rows
        if not removed:
            rows = [row for _, row in open_rows(path).numbered]
            value = [row for row in rows if not texts.in_values(row)]
            removed = len(rows) - len(value)
    if removed:
        _rewrite(path, [json.dumps(value, ensure_ascii=False) + "\n"] if value != [] else [], reading)
    return removed


def _replace(partial: Path, path: Path, *, empty: bool) -> None:
    if empty:
        path.unlink()
        return
    partial.chmod(path.stat().st_mode & 0o777 | 0o200)
    sync(partial)
    partial.replace(path)


def _lines(path: Path, reading: Reading | None = None) -> Iterator[str]:
    """The lines of a text file as its readers see them, with their ends."""
    for block in text_blocks(path, reading or Reading()):
        yield from io.StringIO(block.decode(), newline="\n")


def _aligned(path: Path) -> list[Path]:
    """The files parallel to a file, itself included."""
    of_text = path.name.endswith(".txt")
    if suffix_of(path.name) and not of_text:
        return [path]
    pattern = re.sub(r"[a-zA-Z0-9]+(\.txt)$", r"*\1", path.name)
    files = {}
    for file in parallel_files(path.with_name(pattern) if of_text else path.parent).values():
        if of_text or not suffix_of(file.name):
            with suppress(DataError):  # it is empty, or no text
                files[file] = [line.strip() for line in _lines(file)]
    if path not in files:  # a hidden file, or a name that is a pattern
        return [path]
    aligned = [file for file, lines in files.items() if len(lines) == len(files[path])]
    labelled = not of_text or (len(aligned) > 1 and any(are_labels(files[file]) for file in aligned))
    return aligned if labelled else [path]
