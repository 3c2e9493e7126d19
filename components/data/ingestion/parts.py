"""The steps of the stage `ingest` on one part of the raw files: reading, and writing what is kept.

A part is one or several consecutive raw files, about `PART_BYTES` of text. `read_part` cleans its documents and writes
them and their keys to the work folder; when the duplicates are known, `write_part` writes the shards of the part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.cluster.shards import Facts, Work
from components.data.formats.corpus import PAIR_SCHEMA, SCHEMA, SPLITS, ShardWriter
from components.data.formats.lines import Reading
from components.data.ingestion.cleaning import clean
from components.data.ingestion.dedup import (
    NGRAM,
    PERMUTATIONS,
    Shingles,
    Sketches,
    Words64,
    exact_keys,
    packed_rows,
)
from components.data.ingestion.documents import DROPPED_SCHEMA, ORIGIN_SCHEMA, ORIGINS, Origin
from components.data.ingestion.duplicates import Part
from components.data.ingestion.matching import SEARCH_PERMUTATIONS, HeldOut
from components.data.ingestion.readers import read_documents
from components.settings.data import CorpusSource, IngestSettings, ParallelSource

#: Size of a part; a compressed file counts as the text that it is likely to hold.
PART_BYTES = 32_000_000
COMPRESSION: Final = {".gz": 4, ".zst": 4, ".parquet": 3, ".zip": 4}
_BATCH_CHARACTERS = 4_000_000
_BATCH_ROWS = 8_192
#: Approximate size of a Parquet shard.
SHARD_BYTES = 32_000_000
#: Why a document is left out that repeats the text of a judged row (`components.data.tasks.judged`).
JUDGED: Final = "judged_row"


@dataclass(frozen=True)
class RawFile:
    """A raw file: its name in the corpus, the name by which a worker reads it, and the number of its documents that
    earlier runs have read."""

    name: str
    place: str
    read: int


def divided(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Consecutive files as parts of about `PART_BYTES`; the boundaries depend on names and sizes only."""
    part: list[str] = []
    total = 0
    for name, size in sizes.items():
        size *= COMPRESSION.get(Path(name).suffix.lower(), 1)
        if part and total + size > PART_BYTES:
            yield part
            part, total = [], 0
        part.append(name)
        total += size
    if part:
        yield part


@dataclass(frozen=True)
class ReadPart:
    """Inputs of `read_part`; `size`: bytes of the files; `judged`: name of a JSON list of texts whose copies are left
    out."""

    files: tuple[RawFile, ...]
    source: CorpusSource | ParallelSource
    settings: IngestSettings
    size: int
    judged: str


@dataclass
class _Writer:
    """Writes documents and keys of a part, in batches of bounded size."""

    documents: pa.RecordBatchWriter
    origins: pa.RecordBatchWriter
    left_out: pa.RecordBatchWriter
    shingles: Shingles | None
    judged: HeldOut | None
    counts: dict[str, int]
    exact: list[Words64] = field(default_factory=list)
    sketches: list[Sketches] = field(default_factory=list)
    waiting: list[tuple[Origin, list[str]]] = field(default_factory=list)
    dropped: list[tuple[Any, ...]] = field(default_factory=list)
    size: int = 0

    def add(self, origin: Origin, document: list[str]) -> None:
        self.waiting.append((origin, document))
        self.size += sum(map(len, document))
        if self.size >= _BATCH_CHARACTERS or len(self.waiting) == _BATCH_ROWS:
            self.flush()

    def drop(self, origin: Origin, reason: str) -> None:
        self.counts[reason] += 1
        self.dropped.append((*origin, reason, None, None, None, None))
        if len(self.dropped) == _BATCH_ROWS:
            self.flush_dropped()

    def flush(self) -> None:
        wholes = ["\n".join(texts) for _, texts in self.waiting]
        sketches = self.shingles.sketches(wholes) if self.shingles and wholes else None
        copies = self._copies(wholes, sketches)
        for index in sorted(copies):
            self.drop(self.waiting[index][0], JUDGED)
        kept = [index for index in range(len(wholes)) if index not in copies]
        if kept:
            self.waiting, wholes = [self.waiting[index] for index in kept], [wholes[index] for index in kept]
            origins, all_texts = zip(*self.waiting, strict=True)
            self.exact.append(exact_keys(wholes))
            if sketches is not None:
                self.sketches.append(sketches[kept])
            ids, sources, lines = zip(*origins, strict=True)
            texts, *targets = zip(*all_texts, strict=True)
            columns = [ids, texts, sources, *targets, lines]
            batch = pa.record_batch(columns, schema=_draft_schema(pairs=bool(targets)))
            self.documents.write_batch(batch)
            self.origins.write_batch(batch.select(Origin._fields))
        self.waiting.clear()
        self.size = 0

    def _copies(self, wholes: list[str], sketches: Sketches | None) -> set[int]:
        """The indices of the waiting documents that repeat a judged text; of a pair, on either side."""
        if self.judged is None or not wholes:
            return set()
        sides = [*zip(*(texts for _, texts in self.waiting), strict=True)]
        if len(sides) == 1:
            return self.judged.copies(wholes, sketches)
        return {index for side in sides for index in self.judged.copies(side)}

    def flush_dropped(self) -> None:
        if self.dropped:
            columns = [list(column) for column in zip(*self.dropped, strict=True)]
            self.left_out.write_batch(pa.record_batch(columns, schema=DROPPED_SCHEMA))
        self.dropped.clear()


def _draft_schema(*, pairs: bool) -> pa.Schema:
    return (PAIR_SCHEMA if pairs else SCHEMA).append(pa.field("line", pa.int64()))


def read_part(item: ReadPart, key: str, work: Work) -> Facts:
    """Read and clean the documents of a part: `documents`, `origins` and `left-out` are Arrow streams, `exact` and
    `sketches` their keys and signatures. Returns the number of documents as `rows`, of those left out by reason, and of
    documents, bytes, replaced bytes and lines of each file.

    Raises:
        DataError: a raw file is damaged.
    """
    near = item.settings.near_duplicates
    shingles = Shingles(ngram=NGRAM, permutations=PERMUTATIONS) if near else None
    pairs = isinstance(item.source, ParallelSource)
    texts = json.loads(work.read(item.judged).read_text(encoding="utf-8"))
    judged = HeldOut(texts, permutations=PERMUTATIONS if near else SEARCH_PERMUTATIONS) if texts else None
    counts: Facts = {"rows": 0, "dropped": {"empty": 0, "too_short": 0, JUDGED: 0}, "files": {}}
    with work.scratch() as folder:
        with ExitStack() as stack:
            streams = {"documents": _draft_schema(pairs=pairs), "origins": ORIGINS, "left-out": DROPPED_SCHEMA}
            documents, origins, left_out = (
                stack.enter_context(pa.ipc.new_stream(stack.enter_context(pa.OSFile(str(folder / name), "wb")), schema))
                for name, schema in streams.items()
            )
            writer = _Writer(documents, origins, left_out, shingles, judged, counts["dropped"])
            for file in item.files:
                counts["files"][file.name] = _read_file(file, item, work, writer, counts)
            writer.flush()
            writer.flush_dropped()
        exact = np.concatenate([np.empty((0, 2), np.uint64), *writer.exact])
        counts["rows"] = len(exact)
        exact.tofile(folder / "exact")
        if near:
            np.concatenate([np.empty((0, PERMUTATIONS), np.uint16), *writer.sketches]).tofile(folder / "sketches")
        for name in (*streams, "exact", *(["sketches"] if near else [])):
            work.put(folder / name, f"{key}.{name}")
    return counts


def _read_file(file: RawFile, item: ReadPart, work: Work, writer: _Writer, counts: Facts) -> list[int]:
    reading, read, settings = Reading(), 0, item.settings
    for number, raw, row_id in read_documents(work.read(file.place), item.source, reading):
        read += 1
        if read <= file.read:
            continue
        document = [clean(text, strip_markup=settings.strip_markup) for text in raw]
        origin = Origin(row_id or f"{file.name}:{number}", file.name, number)
        if all(document) and len(document[0]) >= settings.min_characters:
            writer.add(origin, document)
        else:
            reason = "too_short" if all(document) else "empty"
            writer.drop(origin, reason)
    return [read, reading.text_bytes, reading.bad_bytes, reading.bad_lines]


@dataclass(frozen=True)
class WritePart:
    """Inputs of `write_part`.

    Attributes:
        flags: name of a file with a byte per document: whether it is a duplicate.
        heldout: share of the documents that are held out, chosen by the hash of each document's text alone.
        also: number within the part of a further held-out document; -1: none.
        bytes: size of a shard.
    """

    part: Part
    flags: str
    heldout: float
    also: int
    near: bool
    pairs: bool
    bytes: int


def write_part(item: WritePart, key: str, work: Work) -> Facts:
    """Write the kept documents of a part to shards of their split, and their keys and origins to key shards. Returns
    the names of the shards by prefix, and their sizes and digests as in a manifest; numbers; `least`: the smallest hash
    of a kept document, and the number of the document within the part."""
    part, schema = item.part, PAIR_SCHEMA if item.pairs else SCHEMA
    keys = [("exact", pa.binary(16))] + ([("sketch", pa.binary(2 * PERMUTATIONS))] if item.near else [])
    key_schema = pa.schema([*keys, *ORIGIN_SCHEMA])
    kept = ~np.fromfile(work.read(item.flags), bool)
    exact = part.exact(work)
    sketches = part.sketches(work) if item.near else None
    held = exact[:, 0] < np.uint64(min(int(item.heldout * 2**64), 2**64 - 1))
    if item.also >= 0:
        held[item.also] = True
    facts: Facts = {"kept": int(kept.sum()), "heldout": int((kept & held).sum()), "characters": 0, "least": None}
    if kept.any():
        least = int(np.flatnonzero(kept)[np.argmin(exact[kept, 0])])
        facts["least"] = [int(exact[least, 0]), least]
    with work.scratch() as folder:
        writers = {name: ShardWriter(folder, name, schema=schema, limit=item.bytes) for name in SPLITS}
        key_writer = ShardWriter(folder, "keys", schema=key_schema, limit=item.bytes)
        position = 0
        for batch in _batches(work.read(f"{part.key}.documents")):
            rows = slice(position, position + batch.num_rows)
            position = rows.stop
            for split, writer in writers.items():
                mask = kept[rows] & (held[rows] if split == "heldout" else ~held[rows])
                chosen = batch.filter(pa.array(mask)).select(schema.names)
                writer.write(chosen)
                for column in chosen.columns[1:2] + chosen.columns[3:]:
                    facts["characters"] += pc.sum(pc.utf8_length(column)).as_py() or 0
            columns = [packed_rows(exact[rows][kept[rows]])]
            if sketches is not None:
                columns.append(packed_rows(sketches[rows][kept[rows]]))
            chosen = batch.select(Origin._fields).filter(pa.array(kept[rows])).columns
            heldout = pa.array(held[rows][kept[rows]])
            key_writer.write(pa.record_batch([*columns, *chosen, heldout], schema=key_schema))
        shards = {name: writer.close() for name, writer in (*writers.items(), ("keys", key_writer))}
        facts["shards"] = shards
        facts["files"] = {
            name: entry for writer in (*writers.values(), key_writer) for name, entry in writer.files.items()
        }
        for name in facts["files"]:
            work.put(folder / name, name)
    return facts


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    # Read, not memory-mapped: mapped pages count as resident memory of the process.
    with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
        yield from reader


def written(work: Work, keys: Iterable[str], name: str) -> Iterator[pa.RecordBatch]:
    """A stream that the steps `read_part` with these keys have written, such as `left-out` or `origins`."""
    for key in keys:
        yield from _batches(work.read(f"{key}.{name}"))
