"""Removal of records from raw files: all other records keep their bytes, and a file is replaced atomically.

An editor is a function of one file: it copies the records that hold none of the texts and returns how many it left out.
The file gets a new inode, so that hard links to it, such as objects in DVC's cache, keep the old content until they are
removed themselves.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from components.artifacts import partial_path, sync
from components.errors import DataError
from components.formats.lines import LINE_BYTES
from components.formats.tables import suffix
from components.lineage.matching import Texts, columns, holds_text

#: Writes the records of `source` that are kept to `target`; returns the number of the others.
Editor = Callable[[IO[bytes], IO[bytes], Texts], int]
_WIKITEXT_TITLE = re.compile(r"\s?= [^=].* =\s*")


def remove_records(path: Path, texts: Texts) -> int:
    """Remove the records of a file that hold one of the texts; a file without such records is not touched.

    csv and tsv (rows), jsonl (lines), json (innermost objects of lists), txt (documents as in ingestion), conll and
    conllu (sentences), parquet and arrow (rows), and other text (lines); text also with .gz or .zst.
    Files without suffix that have the same number of lines as others in their folder are parallel files, and a line is
    removed from all of them. A file that would have no record left is deleted.

    Returns:
        The number of records removed.

    Raises:
        DataError: the file is damaged.
        OSError: it cannot be written.
    """
    kind = suffix(path.name)
    try:
        if kind == ".parquet":
            return _edit_parquet(path, texts)
        if kind == ".arrow":
            return _edit_arrow(path, texts)
        if not kind and len(aligned := _aligned(path)) > 1:
            return _edit_together(aligned, texts)
        with partial_path(path) as partial:
            with _opened(path, "rb") as source, _opened(partial, "wb", like=path) as target:
                removed = _EDITORS.get(kind, _edit_lines)(source, target, texts)
            if removed:
                _replace(partial, path, empty=_is_empty(partial, path))
        return removed
    except (pa.ArrowException, UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: cannot be edited ({error}); remove the text by hand") from error


def _replace(partial: Path, path: Path, *, empty: bool) -> None:
    if empty:
        path.unlink()
        return
    partial.chmod(path.stat().st_mode & 0o777 | 0o200)
    sync(partial)
    partial.replace(path)


def _is_empty(partial: Path, path: Path) -> bool:
    with _opened(partial, "rb", like=path) as file:
        head = file.read(2)
    return not head.strip() or (path.name.lower().partition(".")[2].startswith("json") and head == b"[]")


@contextmanager
def _opened(path: Path, mode: str, *, like: Path | None = None) -> Iterator[Any]:
    """A binary file, compressed or decompressed as the suffix of `like` (or of the file itself) says."""
    name = (like or path).name.lower()
    if name.endswith(".gz"):
        with gzip.GzipFile(path, mode, mtime=0) as file:
            yield file
    elif name.endswith(".zst"):
        raw = pa.OSFile(str(path), mode)
        with raw:
            if mode == "rb":
                with pa.CompressedInputStream(raw, "zstd") as stream:
                    yield io.BufferedReader(_Raw(stream))
            else:
                with pa.CompressedOutputStream(raw, "zstd") as stream:
                    yield stream
    else:
        with path.open(mode) as file:
            yield file


class _Raw(io.RawIOBase):
    """An Arrow stream as a raw file of Python."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; returns the number of bytes, 0 at the end."""
        block = self._stream.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)


def _edit_lines(source: IO[bytes], target: IO[bytes], texts: Texts) -> int:
    removed = 0
    for raw in source:
        line = raw.decode(errors="replace").rstrip("\r\n")
        # In files of labelled lines the label precedes the text.
        if texts.may_be_in(line) and any(map(texts.held_by, (line, line.partition(" ")[2], *line.split("\t")))):
            removed += 1
        else:
            target.write(raw)
    return removed


def _aligned(path: Path) -> list[Path]:
    """The files without suffix in the folder of a file that have as many lines as it has, itself included."""

    def count(file: Path) -> int:
        with _opened(file, "rb") as lines:
            return sum(1 for _ in lines)

    number = count(path)
    files = [file for file in sorted(path.parent.iterdir()) if file.is_file() and not file.name.startswith(".")]
    return [file for file in files if not suffix(file.name) and count(file) == number]


def _edit_together(files: Sequence[Path], texts: Texts) -> int:
    """Remove the rows of parallel files: line i of each file belongs to row i."""
    held: set[int] = set()
    for file in files:
        with _opened(file, "rb") as lines:
            held |= {row for row, raw in enumerate(lines) if texts.held_by(raw.decode(errors="replace"))}
    for file in files if held else ():
        with partial_path(file) as partial:
            with _opened(file, "rb") as lines, _opened(partial, "wb", like=file) as target:
                for row, raw in enumerate(lines):
                    if row not in held:
                        target.write(raw)
            _replace(partial, file, empty=False)
    return len(held)


def _edit_jsonl(source: IO[bytes], target: IO[bytes], texts: Texts) -> int:
    removed = 0
    for raw in source:
        line = raw.decode(errors="replace")
        if texts.may_be_in(line) and texts.in_values(_parsed(line)):
            removed += 1
        else:
            target.write(raw)
    return removed


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def _edit_csv(source: IO[bytes], target: IO[bytes], texts: Texts) -> int:
    return _edit_table(source, target, texts, {"quoting": csv.QUOTE_MINIMAL})


def _edit_tsv(source: IO[bytes], target: IO[bytes], texts: Texts) -> int:
    return _edit_table(source, target, texts, {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None})


def _edit_table(source: IO[bytes], target: IO[bytes], texts: Texts, dialect: dict[str, Any]) -> int:
    """Rows of a table, each with the lines that it was read from."""
    csv.field_size_limit(LINE_BYTES)
    pending: list[bytes] = []

    def lines() -> Iterator[str]:
        for raw in source:
            pending.append(raw)
            yield raw.decode(errors="replace")

    removed = 0
    for row in csv.reader(lines(), **dialect):
        raws, own = b"".join(pending), list(pending)
        pending.clear()
        if texts.may_be_in(b"".join(own).decode(errors="replace")) and any(map(texts.held_by, row)):
            removed += 1
        else:
            target.write(raws)
    target.write(b"".join(pending))
    return removed


def _edit_json(source: IO[bytes], target: IO[bytes], texts: Texts) -> int:
    raw = source.read()
    removed = 0

    def filtered(value: Any) -> Any:
        nonlocal removed
        if isinstance(value, dict):
            return {key: filtered(inner) for key, inner in value.items()}
        if not isinstance(value, list):
            return value
        kept = []
        for item in value:
            inner = filtered(item) if isinstance(item, dict | list) else item
            # The innermost item that holds the text is removed, not the ones around it.
            if texts.in_values(inner):
                removed += 1
            else:
                kept.append(inner)
        return kept

    value = filtered(json.loads(raw))
    target.write(json.dumps(value, ensure_ascii=False).encode() + b"\n" if removed else raw)
    return removed


def _edit_sentences(source: IO[bytes], target: IO[bytes], texts: Texts) -> int:
    """Blocks of lines up to an empty line; a column of a block is a sentence."""
    removed = 0
    block: list[bytes] = []

    def flush() -> int:
        lines = [raw.decode(errors="replace") for raw in block]
        comments = [line.partition("=")[2] for line in lines if line.startswith("# ")]
        held = any(map(texts.held_by, [*columns(lines), *comments]))
        if not held:
            target.write(b"".join(block))
        block.clear()
        return int(held)

    for raw in source:
        block.append(raw)
        if not raw.strip():
            removed += flush()
    return removed + (flush() if block else 0)


def _edit_text(source: IO[bytes], target: IO[bytes], texts: Texts) -> int:
    """Documents of a text file, as `components.ingestion.readers.read_text` separates them."""
    from components.ingestion.readers import TEXT_DOCUMENT_CHARACTERS

    removed, empty, titled, size = 0, 0, False, 0
    pieces: list[bytes] = []

    def flush() -> int:
        nonlocal size
        held = texts.held_by(b"".join(pieces).decode(errors="replace"))
        if not held:
            target.write(b"".join(pieces))
        pieces.clear()
        size = 0
        return int(held)

    for raw in source:
        line = raw.decode(errors="replace").rstrip("\r\n")
        blank = not line.strip()
        empty = empty + 1 if blank else 0
        title = _WIKITEXT_TITLE.fullmatch(line) is not None
        titled = titled or title
        full = size >= TEXT_DOCUMENT_CHARACTERS and (blank or size >= 2 * TEXT_DOCUMENT_CHARACTERS)
        if pieces and (title or full or (empty == 2 and not titled)):
            removed += flush()
        parts = raw.split(b"\f")
        for index, part in enumerate(parts):
            if index:
                removed += flush() if pieces else 0
                target.write(b"\f")
            pieces.append(part)
            size += len(part)
    return removed + (flush() if pieces else 0)


def _edit_parquet(path: Path, texts: Texts) -> int:
    """Rows of a Parquet file; the schema with its metadata and the compression are kept."""
    removed = 0
    with partial_path(path) as partial:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            schema = file.schema_arrow
            names = [field.name for field in schema if holds_text(field.type)]
            groups = file.metadata.num_row_groups
            codec = file.metadata.row_group(0).column(0).compression if groups else "SNAPPY"
            with pq.ParquetWriter(partial, schema, compression="NONE" if codec == "UNCOMPRESSED" else codec) as writer:
                for batch in file.iter_batches(batch_size=4096):
                    values = [batch.column(schema.get_field_index(name)).to_pylist() for name in names]
                    held = [any(map(texts.in_values, row)) for row in zip(*values, strict=True)]
                    held = held or [False] * batch.num_rows
                    removed += sum(held)
                    writer.write_batch(batch.filter(pa.array([not one for one in held])))
            left = file.metadata.num_rows - removed
        if removed:
            _replace(partial, path, empty=not left)
    return removed


def _edit_arrow(path: Path, texts: Texts) -> int:
    """Rows of an Arrow stream, in which Hugging Face saves data sets. A file that has no row left is kept, because the
    data set's list of files names it."""
    removed = 0
    with partial_path(path) as partial:
        with (
            pa.memory_map(str(path)) as source,
            pa.ipc.open_stream(source) as stream,
            pa.OSFile(str(partial), "wb") as file,
            pa.ipc.new_stream(file, stream.schema) as writer,
        ):
            for batch in stream:
                held = [texts.in_values(list(row.values())) for row in batch.to_pylist()]
                removed += sum(held)
                writer.write_batch(batch.filter(pa.array([not one for one in held])))
        if removed:
            _replace(partial, path, empty=False)
    return removed


_EDITORS: dict[str, Editor] = {
    ".jsonl": _edit_jsonl,
    ".ndjson": _edit_jsonl,
    ".json": _edit_json,
    ".csv": _edit_csv,
    ".tsv": _edit_tsv,
    ".txt": _edit_text,
    ".conll": _edit_sentences,
    ".conllu": _edit_sentences,
}
