"""Removal of records from raw files: all other records keep their bytes. A format is a function that divides a file
into records: it yields the bytes that stay and how many were left out. The file is replaced atomically and gets a new
inode, so that hard links, such as objects in DVC's cache, keep the old content."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.artifacts import partial_path, sync
from components.core.errors import DataError
from components.data.formats.delimited import Dialect
from components.data.formats.kinds import are_labels, form_of
from components.data.formats.lines import CODECS, Reading, text_blocks
from components.data.formats.plain import FASTTEXT, parallel_files
from components.data.formats.separated import dialect_of
from components.data.formats.tables import PLAIN, suffix
from components.data.ingestion.readers import TEXT, document_ends
from components.data.matching import Texts, columns, held_rows, open_table
from components.settings.formats import SUFFIXES

#: (bytes to write, number of records left out)
Kept = Iterator[tuple[bytes, int]]
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
    kind = suffix(path.name)
    if not path.exists():
        return 0  # it went with the file whose lines belong to its own
    try:
        if kind in (".parquet", ".arrow"):
            return _rewrite_table(path, texts)
        if SUFFIXES.get(kind) == "workbook" or path.suffix.lower() == ".zip":
            raise DataError(f"{path}: workbooks and zip archives are not edited; remove the text by hand")
        aligned = [path] if kind not in ("", ".txt") else _aligned(path)
        apart = kind == ".txt" and len(aligned) < 2 and not _is_delimited(path, kind) and _has_lines_only(path)
        # A long text is in the document of its line, too, which may be the whole file.
        if apart and (removed := _rewrite(path, lambda source: _lines(source, texts))):
            return removed
        if len(aligned) < 2:
            edit = _EDITORS.get(TEXT if kind == ".txt" else SUFFIXES.get(kind, ""), _lines)
            if _is_delimited(path, kind):
                first = next(text_blocks(path, reading := Reading()), b"")
                edit = partial(_table, dialect=dialect_of(path, PLAIN, first), encoding=reading.encoding.name)
            return _rewrite(path, lambda source: edit(source, texts))
        held: set[int] = set()
        holders: set[Path] = set()
        for file in aligned:
            with _opened(file) as lines:
                rows = {row for row, raw in enumerate(lines) if texts.held_by(_text(raw))}
            held |= rows
            holders |= {file} if rows else set()
        # Files that hold a text are last, so that one that was killed here finds it again.
        for file in sorted(aligned, key=lambda file: file in holders):
            _rewrite(file, lambda lines: ((b"", 1) if row in held else (raw, 0) for row, raw in enumerate(lines)))
        return len(held)
    except (pa.ArrowException, UnicodeDecodeError, csv.Error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(f"{path}: cannot be edited ({error}); remove the text by hand") from error


def _rewrite(path: Path, edit: Callable[[IO[bytes]], Kept]) -> int:
    """Write a text file without the records that `edit` leaves out; returns their number."""
    removed, head = 0, b""
    with partial_path(path) as partial:
        with _opened(path) as source, pa.output_stream(str(partial), compression=_codec(path)) as target:
            for raw, count in edit(source):
                target.write(raw)
                head += raw.strip()[:3] if len(head) < 3 else b""
                removed += count
        if removed:
            _replace(partial, path, empty=not head or (suffix(path.name) == ".json" and head == b"[]"))
    return removed


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


def _replace(partial: Path, path: Path, *, empty: bool) -> None:
    if empty:
        path.unlink()
        return
    partial.chmod(path.stat().st_mode & 0o777 | 0o200)
    sync(partial)
    partial.replace(path)


def _codec(path: Path) -> str | None:
    return CODECS.get(path.suffix.lower())


def _opened(path: Path) -> io.BufferedReader:
    return io.BufferedReader(pa.input_stream(str(path), compression=_codec(path)))


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _aligned(path: Path) -> list[Path]:
    """The files parallel to a file, itself included: without suffix in its folder, or txt files of its pattern, as
    long."""

    def count(file: Path) -> int:
        with _opened(file) as lines:
            return sum(1 for _ in lines)

    if suffix(path.name) == ".txt":
        pattern = re.sub(r"[a-zA-Z0-9]+(\.txt)$", r"*\1", path.name)
        files = [*parallel_files(path.with_name(pattern)).values()] if path.name.endswith(".txt") else []
        files = [file for file in files if count(file) == count(path)]
        return files if len(files) > 1 and any(map(_holds_labels, files)) else [path]
    files = [file for file in sorted(path.parent.iterdir()) if file.is_file() and not file.name.startswith(".")]
    files = [file for file in files if not suffix(file.name)]
    return [file for file in files if count(file) == count(path)]


def _holds_labels(path: Path) -> bool:
    with _opened(path) as lines:
        return are_labels([_text(line).strip() for line in lines])


def _has_lines_only(path: Path) -> bool:
    """Whether a file has several lines, none of them empty: a text a line."""
    with _opened(path) as lines:
        count = 0
        for line in lines:
            if not line.strip():
                return False
            count += 1
    return count > 1


def _kept(records: Iterable[bytes], held: Callable[[str], bool]) -> Kept:
    return ((b"", 1) if held(_text(raw)) else (raw, 0) for raw in records)


def _lines(source: IO[bytes], texts: Texts) -> Kept:
    def held(raw: str) -> bool:
        line = raw.rstrip("\r\n")
        # In files of labelled lines the label precedes the text.
        rest = _FASTTEXT.sub("", line).partition(" ")[2]
        return texts.may_be_in(line) and any(map(texts.held_by, (line, rest, *line.split("\t"))))

    return _kept(source, held)


def _json_lines(source: IO[bytes], texts: Texts) -> Kept:
    def held(line: str) -> bool:
        if not texts.may_be_in(line):
            return False
        try:
            return texts.in_values(json.loads(line))
        except ValueError:
            return texts.in_values(line)

    return _kept(source, held)


def _is_delimited(path: Path, kind: str) -> bool:
    """Whether a file is a table of rows with delimiters; a txt file only if it has tabs in every line."""
    try:
        return SUFFIXES.get(kind) in ("csv", "tsv") or (kind == ".txt" and form_of(path) == "tsv")
    except DataError:
        return False


def _table(source: IO[bytes], texts: Texts, *, dialect: Dialect, encoding: str) -> Kept:
    """Rows of a table, each with the lines that it was read from."""
    if encoding.startswith(("utf-16", "utf-32")):
        raise DataError(f"a table in {encoding} is not edited; convert it to UTF-8")
    csv.field_size_limit(2**31 - 1)
    pending: list[bytes] = []

    def lines() -> Iterator[str]:
        for raw in source:
            pending.append(raw)
            yield raw.decode(encoding, errors="replace")

    for row in csv.reader(dialect.doubled(lines()), **dialect.arguments | {"strict": False}):
        raw = b"".join(pending)
        pending.clear()
        held = texts.may_be_in(raw.decode(encoding, errors="replace")) and any(map(texts.held_by, row))
        yield (b"", 1) if held else (raw, 0)
    yield b"".join(pending), 0


def _json(source: IO[bytes], texts: Texts) -> Kept:
    """The innermost item that holds the text is removed, not the ones around it."""
    raw = source.read()
    removed = 0

    def filtered(value: Any) -> Any:
        nonlocal removed
        if isinstance(value, dict):
            return {key: filtered(inner) for key, inner in value.items()}
        if not isinstance(value, list):
            return value
        items = [item if _is_row(item) else filtered(item) for item in value]
        kept = [item for item in items if not texts.in_values(item)]
        removed += len(items) - len(kept)
        return kept

    value = filtered(json.loads(raw))
    yield (json.dumps(value, ensure_ascii=False).encode() + b"\n" if removed else raw), removed


def _is_row(item: Any) -> bool:
    """Whether an item of a list is a list of the values of a row, such as `[text, label]`."""
    return isinstance(item, list) and any(isinstance(value, str) for value in item)


def _sentences(source: IO[bytes], texts: Texts) -> Kept:
    """Blocks of lines up to an empty line; a column of a block is a sentence."""

    def blocks() -> Iterator[bytes]:
        block: list[bytes] = []
        for raw in source:
            block.append(raw)
            if not raw.strip():
                yield b"".join(block)
                block.clear()
        yield b"".join(block)

    def held(block: str) -> bool:
        lines = block.split("\n")
        comments = [line.partition("=")[2] for line in lines if line.startswith("# ")]
        return any(map(texts.held_by, [*columns(lines), *comments]))

    return _kept(blocks(), held)


def _documents(source: IO[bytes], texts: Texts) -> Kept:
    """Documents of a text file, as ingestion separates them."""
    ends, size = document_ends(), 0
    pieces: list[bytes] = []

    def ended() -> tuple[bytes, int]:
        nonlocal size
        whole = b"".join(pieces)
        pieces.clear()
        size = 0
        return (b"", 1) if texts.held_by(_text(whole)) else (whole, 0)

    for raw in source:
        apart = ends(_text(raw).rstrip("\r\n"), size)
        if pieces and apart:
            yield ended()
        for index, page in enumerate(raw.split(b"\f")):
            if index:
                yield ended()
                yield b"\f", 0
            pieces.append(page)
            size += len(page)
    yield ended()


#: Format -> function that divides a file into records; of other formats, a line is one.
_EDITORS: dict[str, Callable[[IO[bytes], Texts], Kept]] = {
    "jsonl": _json_lines,
    "json": _json,
    TEXT: _documents,
    "conll": _sentences,
    "conllu": _sentences,
}
