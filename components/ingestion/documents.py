"""The fate of each document: the origins of all documents, `dropped.parquet`, and look-up by id or position.

`dropped.parquet` lies next to the shards of a corpus and has one row per dropped document, over all runs that have
added to the corpus. Its twin columns name the earlier document that a duplicate was compared with, which may itself be
dropped; they are null for other reasons.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from components.artifacts import read_manifest
from components.errors import DataError, nearest
from components.formats.corpus import KIND, Split, read_batches

DROPPED = "dropped.parquet"
DROPPED_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("line", pa.int64()),
        ("reason", pa.string()),
        ("twin", pa.string()),
        ("twin_source", pa.string()),
        ("twin_line", pa.int64()),
        ("similarity", pa.float32()),
    ]
)
#: The columns of a key shard that identify the kept document of each key.
ORIGIN_SCHEMA = pa.schema([("id", pa.string()), ("source", pa.string()), ("line", pa.int64()), ("heldout", pa.bool_())])
_GROUP_ROWS = 16_384
# FILE:LINE, FILE#ROW, and the notation of error messages.
_POSITION = re.compile(r"(?P<file>.+?)(?:[:#]|, (?:line|row) )(?P<line>\d+)")
# Formats in which a document may span several lines.
_MULTILINE = re.compile(r"\.(txt|csv|tsv)(\.gz|\.zst)?", re.IGNORECASE)


class Origin(NamedTuple):
    """Where a document comes from: its id, its raw file, its first line (or row) in that file, from 1."""

    id: str
    source: str
    line: int

    def __str__(self) -> str:
        position = f"{self.source}:{self.line}"
        return position if self.id == position else f"{self.id} ({position})"


class Origins:
    """The origins of all documents in files, by document number."""

    def __init__(self, directory: Path) -> None:
        self._records = (directory / "origins").open("w+b")
        self._ends = (directory / "origin-ends").open("w+b")
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._records.close()
        self._ends.close()

    def add(self, origins: list[Origin]) -> None:
        """Append the origins of the next documents."""
        records = [json.dumps(origin).encode() for origin in origins]
        self._records.write(b"".join(records))
        ends = self._end + np.cumsum([len(record) for record in records], dtype=np.int64)
        self._ends.write(ends.astype("<i8").data)
        self._end = int(ends[-1]) if records else self._end

    def __getitem__(self, document: int) -> Origin:
        self._records.flush()
        self._ends.flush()
        self._ends.seek(8 * max(document - 1, 0))
        ends = np.frombuffer(self._ends.read(16), dtype="<i8").tolist()
        start, end = (ends[0], ends[1]) if document else (0, ends[0])
        self._records.seek(start)
        origin = Origin(*json.loads(self._records.read(end - start)))
        for file in (self._records, self._ends):
            file.seek(0, 2)
        return origin


class DroppedWriter:
    """Writes `dropped.parquet` in `directory`: first the rows of the earlier file if there is one, then new rows.

    Args:
        directory: of the corpus.
        without: which rows of the earlier file are left out; None: none.
    """

    def __init__(self, directory: Path, *, without: Callable[[Mapping[str, Any]], bool] | None = None) -> None:
        # The earlier file may be a hard link into a complete corpus: it is replaced, never written to.
        self._target = directory / DROPPED
        self._draft = directory / f".{DROPPED}"
        self._rows: list[tuple[Any, ...]] = []
        self._writer = pq.ParquetWriter(
            self._draft, DROPPED_SCHEMA, compression="zstd", use_dictionary=["source", "reason", "twin_source"]
        )
        if self._target.is_file():
            for batch in read_batches(self._target, DROPPED_SCHEMA.names):
                for row in batch.to_pylist():
                    if without is None or not without(row):
                        self._append(tuple(row.values()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:
            self._flush()
        self._writer.close()
        if error is None:
            self._draft.replace(self._target)

    def add(self, origin: Origin, reason: str, twin: Origin | None = None, similarity: float | None = None) -> None:
        """Append a dropped document; of a duplicate, its twin and their similarity."""
        self._append((*origin, reason, *(twin or (None, None, None)), similarity))

    def _append(self, row: tuple[Any, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) == _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            columns = [list(column) for column in zip(*self._rows, strict=True)]
            self._writer.write_batch(pa.record_batch(columns, schema=DROPPED_SCHEMA))
            self._rows.clear()


@dataclass(frozen=True)
class Fate:
    """Whether and why a document was kept or dropped.

    Attributes:
        origin: the document.
        split: the split that it is in; None if it was dropped.
        reason: why it was dropped, one of `components.ingestion.counts.REASONS`; None if it was kept.
        twin: the fate of the document that a duplicate was compared with.
        similarity: estimated Jaccard similarity to the twin, between 0 and 1.
    """

    origin: Origin
    split: Split | None = None
    reason: str | None = None
    twin: Fate | None = None
    similarity: float | None = None

    def __str__(self) -> str:
        return f"{self.origin}: {self._outcome()}"

    def _outcome(self) -> str:
        if self.split is not None:
            return f"kept in the {self.split} split"
        if self.twin is None:
            return _REASONS.get(self.reason or "", f"dropped ({self.reason})")
        if self.reason == "exact_duplicate":
            return f"dropped as an exact duplicate of {self.twin.origin}, which is {self.twin._outcome()}"
        similarity = f"estimated Jaccard similarity {self.similarity:.2f}"
        return f"dropped as a near duplicate ({similarity}) of {self.twin.origin}, which is {self.twin._outcome()}"


_REASONS = {
    "empty": "dropped: no text is left after cleaning",
    "too_short": "dropped: it has fewer characters than ingest.min_characters",
}


def what_became_of(directory: Path, document: str) -> list[Fate]:
    """The fate of a document of the corpus in `directory`; several where the id is not unique.

    Args:
        directory: output of the stage `ingest`.
        document: an id; or a position as FILE:LINE, FILE#ROW or "FILE, line LINE". FILE is a path relative to the
            folder of raw files, or any path that ends in one. In txt, csv and tsv files, LINE may be any line of the
            document.

    Raises:
        ArtifactError: the directory is not a complete corpus.
        DataError: no such document was read.
    """
    facts = read_manifest(directory, kind=KIND).facts
    found = _look_up(directory, facts, pc.field("id") == document)
    if not found and (position := _POSITION.fullmatch(document)):
        found = _at_position(directory, facts, position["file"], int(position["line"]))
    if not found:
        raise DataError(
            f"{directory}: no document {document!r} in the {len(facts['files'])} raw files that were read; give an id, "
            "FILE:LINE, or FILE#ROW for Parquet"
        )
    return found


def _at_position(directory: Path, facts: Mapping[str, Any], file: str, line: int) -> list[Fate]:
    source = next((name for name in facts["files"] if file == name or file.endswith(f"/{name}")), None)
    if source is None:
        if any(file == name or file.endswith(f"/{name}") for name in facts["ignored"]):
            raise DataError(f"{file}: was not read by ingest: its suffix is not a known format")
        raise DataError(f"{directory}: no raw file {file!r}{nearest(file, facts['files'])}")
    if _MULTILINE.search(source):
        lines = [
            int(last)
            for path in _tables(directory, facts)
            for batch in _matching(path, (pc.field("source") == source) & (pc.field("line") <= line))
            if (last := pc.max(batch["line"]).as_py()) is not None
        ]
        line = max(lines, default=line)
    if found := _look_up(directory, facts, (pc.field("source") == source) & (pc.field("line") == line)):
        return found
    raise DataError(f"{directory}: no document begins at line (or row) {line} of {source}")


def _tables(directory: Path, facts: Mapping[str, Any]) -> list[Path]:
    return [directory / name for name in (*facts["keys"], DROPPED)]


def _matching(path: Path, condition: pc.Expression) -> Iterator[pa.RecordBatch]:
    """The rows of a key shard or of `dropped.parquet` that match, without its keys."""
    schema = DROPPED_SCHEMA if path.name == DROPPED else ORIGIN_SCHEMA
    for batch in read_batches(path, schema.names):
        yield batch.filter(condition)


def _look_up(
    directory: Path, facts: Mapping[str, Any], condition: pc.Expression, seen: frozenset[Origin] = frozenset()
) -> list[Fate]:
    found: list[Fate] = []
    for path in _tables(directory, facts):
        for batch in _matching(path, condition):
            for row in batch.to_pylist():
                origin = Origin(row["id"], row["source"], row["line"])
                if "reason" not in row:
                    found.append(Fate(origin, split="heldout" if row["heldout"] else "train"))
                else:
                    twin = _twin(directory, facts, row, seen | {origin})
                    found.append(Fate(origin, reason=row["reason"], twin=twin, similarity=row["similarity"]))
    return found


def _twin(directory: Path, facts: Mapping[str, Any], row: Mapping[str, Any], seen: frozenset[Origin]) -> Fate | None:
    """The fate of a duplicate's twin; None for a document dropped for another reason."""
    if row["twin"] is None:
        return None
    twin = Origin(row["twin"], row["twin_source"], row["twin_line"])
    # Two documents of one line have the same origin where a form feed separates them.
    condition = (pc.field("id") == twin.id) & (pc.field("source") == twin.source) & (pc.field("line") == twin.line)
    fates = [] if twin in seen else _look_up(directory, facts, condition, seen)
    return fates[0] if fates else Fate(twin)
