"""What became of each document: `dropped.parquet`, and look-up by id or position.

`dropped.parquet` lies next to the shards of a corpus and has one row per dropped document, over all runs that have
added to the corpus. Its twin columns name the earlier document that a duplicate was compared with, which may itself be
dropped; they are null for other reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from components.core.artifacts import read_manifest
from components.core.errors import DataError, nearest
from components.data.formats.corpus import KIND, Split, read_batches

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
ORIGINS = pa.schema([DROPPED_SCHEMA.field(name) for name in ("id", "source", "line")])
JUDGED = "judged_row"
#: Why a document is dropped, in the order in which it is checked, and in words.
REASONS = {
    "empty": "dropped: no text is left after cleaning",
    "too_short": "dropped: it has fewer characters than ingest.min_characters",
    JUDGED: "dropped: it has the text of a row on which scores are computed, which no language model may read",
    "exact_duplicate": "dropped as an exact duplicate of {twin}",
    "near_duplicate": "dropped as a near duplicate (estimated Jaccard similarity {similarity:.2f}) of {twin}",
}
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


@contextmanager
def dropped_writer(directory: Path) -> Iterator[pq.ParquetWriter]:
    """Writer of `dropped.parquet` in `directory`, after the rows of the earlier file if there is one."""
    # The earlier file may be a hard link into a complete corpus: it is replaced, never written to.
    target, draft = directory / DROPPED, directory / f".{DROPPED}"
    repeated = ["source", "reason", "twin_source"]
    with pq.ParquetWriter(draft, DROPPED_SCHEMA, compression="zstd", use_dictionary=repeated) as writer:
        if target.is_file():
            for batch in read_batches(target, DROPPED_SCHEMA.names):
                writer.write_batch(batch)
        yield writer
    draft.replace(target)


@dataclass(frozen=True)
class Outcome:
    """Whether and why a document was kept or dropped.

    Attributes:
        reason: why it was dropped, one of `REASONS`; None if it was kept.
        twin: the outcome of the document that a duplicate was compared with.
        similarity: estimated Jaccard similarity to the twin, between 0 and 1.
    """

    origin: Origin
    split: Split | None = None
    reason: str | None = None
    twin: Outcome | None = None
    similarity: float | None = None

    def __str__(self) -> str:
        return f"{self.origin}: {self.in_words}"

    @property
    def in_words(self) -> str:
        """What became of it."""
        if self.split is not None:
            return f"kept in the {self.split} split"
        twin = self.twin and f"{self.twin.origin}, which is {self.twin.in_words}"
        words = REASONS.get(self.reason or "", f"dropped ({self.reason})")
        return words.format(twin=twin, similarity=self.similarity)


def what_became_of(directory: Path, document: str) -> list[Outcome]:
    """The outcome of a document of the corpus in `directory`; several where the id is not unique. `document`: an id; or
    a position as FILE:LINE, FILE#ROW or "FILE, line LINE". FILE is a path relative to the folder of raw files, or any
    path that ends in one. In txt, csv and tsv files, LINE may be any line of the document.

    Raises:
        ArtifactError: the directory is not a complete corpus.
        DataError: no such document was read.
    """
    facts = read_manifest(directory, kind=KIND).facts
    outcomes = _look_up(directory, facts, pc.field("id") == document)
    if not outcomes and (position := _POSITION.fullmatch(document)):
        outcomes = _at_position(directory, facts, position["file"], int(position["line"]))
    if not outcomes:
        raise DataError(
            f"{directory}: no document {document!r} in the {len(facts['files'])} raw files that were read; give an id, "
            "FILE:LINE, or FILE#ROW for Parquet"
        )
    return outcomes


def _at_position(directory: Path, facts: Mapping[str, Any], file: str, line: int) -> list[Outcome]:
    source = next((name for name in facts["files"] if f"/{file}".endswith(f"/{name}")), None)
    if source is None:
        if any(f"/{file}".endswith(f"/{name}") for name in facts["ignored"]):
            raise DataError(f"{file}: was not read by ingest: its suffix is not a known format")
        raise DataError(f"{directory}: no raw file {file!r}{nearest(file, facts['files'])}")
    if _MULTILINE.search(source):
        before = (pc.field("source") == source) & (pc.field("line") <= line)
        line = max((row["line"] for row in _rows(directory, facts, before)), default=line)
    if outcomes := _look_up(directory, facts, (pc.field("source") == source) & (pc.field("line") == line)):
        return outcomes
    raise DataError(f"{directory}: no document begins at line (or row) {line} of {source}")


def _rows(directory: Path, facts: Mapping[str, Any], condition: pc.Expression) -> Iterator[dict[str, Any]]:
    for name in (*facts["keys"], DROPPED):
        names = DROPPED_SCHEMA.names if name == DROPPED else [*ORIGINS.names, "heldout"]
        for batch in read_batches(directory / name, names):
            yield from batch.filter(condition).to_pylist()


def _look_up(
    directory: Path, facts: Mapping[str, Any], condition: pc.Expression, seen: frozenset[Origin] = frozenset()
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for row in _rows(directory, facts, condition):
        origin, twin = Origin(*(row[name] for name in Origin._fields)), None
        if "heldout" in row:
            outcomes.append(Outcome(origin, split="heldout" if row["heldout"] else "train"))
            continue
        if row["twin"] is not None:
            other, before = Origin(row["twin"], row["twin_source"], row["twin_line"]), seen | {origin}
            same = [pc.field(name) == value for name, value in other._asdict().items()]
            # Two documents of one line have the same origin where a form feed separates them.
            twins = [] if other in before else _look_up(directory, facts, same[0] & same[1] & same[2], before)
            twin = twins[0] if twins else Outcome(other)
        outcomes.append(Outcome(origin, reason=row["reason"], twin=twin, similarity=row["similarity"]))
    return outcomes
