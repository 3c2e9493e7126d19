"""Raw files of the built-in data: JSON lines, plain or compressed, with the same bytes on every machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from components.artifacts import write_atomic
from components.errors import DataError

# One call in one thread: the bytes depend on the text, the level and the locked library only.
_LEVEL = 9


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write one JSON object per line; returns the number of rows."""
    lines = [_line(row) for row in rows]
    _make(path.parent)
    write_atomic(path, "".join(lines).encode())
    return len(lines)


def write_corpus(directory: Path, documents: Iterable[Mapping[str, Any]], *, megabytes: float) -> int:
    """Write part-000.jsonl.zst, part-001 ..., of about `megabytes` uncompressed; returns the number of documents."""
    count, size, part = 0, 0, 0
    lines: list[str] = []
    _make(directory)

    def flush() -> None:
        nonlocal part, size
        name = f"part-{part:03d}.jsonl.zst"
        buffer = pa.Codec("zstd", compression_level=_LEVEL).compress("".join(lines).encode(), asbytes=True)
        write_atomic(directory / name, buffer)
        part, size = part + 1, 0
        lines.clear()

    for document in documents:
        lines.append(_line(document))
        count, size = count + 1, size + len(lines[-1])
        if size >= megabytes * 1e6:
            flush()
    if lines:
        flush()
    return count


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from error
