"""The stage `ingest`: raw files of one corpus to clean, distinct documents, or pairs of texts.

Two passes, so that memory does not grow with the corpus: the first reads and cleans documents and writes them and their
keys to temporary files; then duplicates are found among the keys; the second writes the kept documents to the shards.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.core.artifacts import Draft, digest_file, write_atomic, writing
from components.core.errors import DataError
from components.core.progress import Progress
from components.data.formats.corpus import (
    KIND,
    PAIR_SCHEMA,
    SCHEMA,
    SPLITS,
    ShardWriter,
    previous,
    read_batches,
)
from components.data.formats.lines import Reading
from components.data.formats.tables import suffix
from components.data.ingestion.cleaning import clean
from components.data.ingestion.dedup import (
    NGRAM,
    PERMUTATIONS,
    Duplicates,
    Flags,
    KeyFiles,
    Shingles,
    band_rows,
    exact_keys,
    packed_rows,
    unpacked_rows,
)
from components.data.ingestion.documents import DROPPED_SCHEMA, ORIGIN_SCHEMA, Origin, dropped_writer
from components.data.ingestion.readers import raw_files, read_documents
from components.settings.data import CorpusSource, ParallelSource
from components.settings.ingest import IngestSettings
from components.settings.section import Section

#: Incremented when the same raw text and settings give other documents or files; older corpora are then rewritten.
VERSION = 3
#: Reasons for which a document is dropped, in the order in which they are checked.
REASONS = ("empty", "too_short", "exact_duplicate", "near_duplicate")
_BATCH_CHARACTERS = 4_000_000
_BATCH_ROWS = 8_192
#: Approximate size of a Parquet shard.
SHARD_BYTES = 32_000_000


class IngestJob(Section):
    """Inputs of the stage for one corpus. A pair is one document: its key is computed from both texts together.

    Attributes:
        rebuild: why the whole corpus has to be written again; empty: only what was added is read.
    """

    name: str
    source: CorpusSource | ParallelSource
    settings: IngestSettings
    output: Path
    rebuild: str = ""


@dataclass
class Counts:
    """Totals over all runs that have added to the corpus: documents, characters, bytes, lines and files."""

    documents: int = 0
    kept: int = 0
    heldout: int = 0
    characters: int = 0
    raw_bytes: int = 0
    bad_bytes: int = 0
    bad_lines: int = 0
    files: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    def metrics(self) -> dict[str, int]:
        """The counts as one flat mapping, for metrics.json."""
        numbers = {name: value for name, value in vars(self).items() if name != "dropped"}
        return numbers | {f"dropped_{reason}": count for reason, count in self.dropped.items()}

    def __str__(self) -> str:
        dropped = [f"{number:,} {reason.replace('_', ' ')}" for reason, number in self.dropped.items() if number]
        return (
            f"{self.documents:,} documents read, {self.kept:,} kept, {self.heldout:,} of them held out"
            + (f"; dropped: {', '.join(dropped)}" if dropped else "")
            + (f"; {self.bad_bytes:,} bytes that are not UTF-8 were replaced" if self.bad_bytes else "")
        )


def ingest(job: IngestJob) -> Path:
    """Write the corpus directory `job.output` from the raw files of `job.source`; returns it.

    Append-only: shards stay, only new files and lines that were appended to a file are read, and the new documents
    follow the old ones, whatever the file names. A missing or edited raw file and other settings cause a complete
    rewrite; the fact `rewritten` of the manifest has the reason.

    Raises:
        DataError: there are no raw files, one is damaged, or fewer than two documents are left.
    """
    files, ignored = raw_files(Path(job.source.path))
    root = Path(job.source.path) if Path(job.source.path).is_dir() else Path(job.source.path).parent
    paths = {path.relative_to(root).as_posix(): path for path in files}
    try:
        digests = {name: digest_file(path) for name, path in paths.items()}
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from error
    columns = [job.source.text] if isinstance(job.source, CorpusSource) else [job.source.source, job.source.target]
    recipe = {
        "version": VERSION,
        "settings": job.settings.model_dump(mode="json"),
        "columns": [*columns, job.source.id],
    }
    before = previous(job.output)
    if before is None:
        reason = "first run"
    elif job.rebuild:
        reason = f"requested: {job.rebuild}"
    else:
        reason = _reason_to_rewrite(before, recipe, paths, digests)
    if before is not None and not reason and before["files"] == digests:
        return job.output
    keep = before if not reason else None
    with writing(job.output, kind=KIND, keep=keep is not None) as draft:
        new = {name: path for name, path in paths.items() if keep is None or keep["files"].get(name) != digests[name]}
        _Run(job, draft, keep).add(new)
        draft.facts |= {
            "corpus": job.name,
            "recipe": recipe,
            "files": digests,
            "ignored": [path.relative_to(root).as_posix() for path in ignored],
            "rewritten": reason or None,
        }
        print(f"ingest {job.name}: {Counts(**draft.facts['counts'])}")
    return job.output


def _reason_to_rewrite(
    before: dict[str, Any], recipe: dict[str, Any], paths: dict[str, Path], digests: dict[str, str]
) -> str:
    if before["recipe"].get("version") != recipe["version"]:
        return "written by another version"
    if before["recipe"] != recipe:
        return "settings changed"
    for name, digest in before["files"].items():
        if name not in digests:
            return f"raw file gone: {name}"
        if digests[name] != digest and not _was_extended(paths[name], before["file_counts"][name][1], digest):
            return f"raw file changed: {name}"
    return ""


def _was_extended(path: Path, size: int, digest: str) -> bool:
    """Whether lines were appended to a file of `size` bytes with this digest: its documents are unchanged."""
    if suffix(path.name) in (".txt", ".parquet"):
        return False
    start, last = hashlib.sha256(), b""
    with path.open("rb") as file:
        while size and (block := file.read(min(size, 1 << 20))):
            start.update(block)
            size, last = size - len(block), block
    return last.endswith(b"\n") and start.hexdigest() == digest


class _Run:
    """One run over new raw files. Documents of earlier runs are only compared with, never dropped."""

    def __init__(self, job: IngestJob, draft: Draft, before: dict[str, Any] | None) -> None:
        self.job, self.draft = job, draft
        #: Raw file -> its documents, bytes, replaced bytes and lines.
        self.files: dict[str, list[int]] = dict(before["file_counts"]) if before else {}
        self.shards: dict[str, list[str]] = before["shards"] if before else {split: [] for split in SPLITS}
        self.key_shards: list[str] = before["keys"] if before else []
        self.counts = Counts(**before["counts"]) if before else Counts()
        near = job.settings.near_duplicates
        self.shingles = Shingles(ngram=NGRAM, permutations=PERMUTATIONS) if near else None
        keys = [("exact", pa.binary(16))] + ([("sketch", pa.binary(2 * PERMUTATIONS))] if near else [])
        self.key_schema = pa.schema([*keys, *ORIGIN_SCHEMA])
        self.schema = SCHEMA if isinstance(job.source, CorpusSource) else PAIR_SCHEMA
        self.draft_schema = self.schema.append(pa.field("line", pa.int64()))
        self.work = draft.path / ".work"

    def add(self, files: dict[str, Path]) -> None:
        """Read, compare and write; leaves shards, keys, dropped.parquet, metrics.json and facts in the draft."""
        near = self.job.settings.near_duplicates
        permutations, rows = (PERMUTATIONS, band_rows(near.threshold)) if near else (0, 1)
        try:
            with (
                KeyFiles(self.work, permutations=permutations, rows=rows) as keys,
                dropped_writer(self.draft.path) as dropped,
            ):
                columns = ["exact", "sketch"] if near else ["exact"]
                for name in self.key_shards:
                    for batch in read_batches(self.draft.path / name, columns):
                        sketches = unpacked_rows(batch.column(1), np.uint16) if near else None
                        keys.add(unpacked_rows(batch.column(0), np.uint64), sketches)
                old = keys.count
                self._read(files, keys, dropped)
                duplicates = keys.find_duplicates(threshold=near.threshold if near else 1.0, first=old)
                self.counts.dropped["exact_duplicate"] += int(duplicates.exact.sum())
                self.counts.dropped["near_duplicate"] += int((~duplicates.exact).sum())
                if len(duplicates.later):
                    dropped.write_batch(self._rows_of(duplicates))
                flags = np.zeros(keys.count, dtype=bool)
                flags[duplicates.later] = True
                self._write(keys, flags, old)
        finally:
            shutil.rmtree(self.work, ignore_errors=True)
        if self.counts.kept < 2 or self.counts.kept == self.counts.heldout:
            raise DataError(
                f"{self.job.source.path}: {self.counts}; a corpus needs at least 2 different documents, one of them "
                "to train on; a document is a line in jsonl, a row in csv, tsv or parquet, and in txt a block of text "
                "followed by two empty lines"
            )
        self.draft.facts |= {"shards": self.shards, "keys": self.key_shards, "counts": vars(self.counts)}
        self.draft.facts |= {"file_counts": self.files}
        write_atomic(self.draft.path / "metrics.json", json.dumps(self.counts.metrics(), indent=1) + "\n")

    def _read(self, files: dict[str, Path], keys: KeyFiles, dropped: Any) -> None:
        """First pass: documents to a temporary Arrow file, their keys to `keys`."""
        settings, counts, reading = self.job.settings, self.counts, Reading()
        total = sum(path.stat().st_size for path in files.values())
        documents: list[tuple[Origin, list[str]]] = []
        left_out: list[tuple[Any, ...]] = []
        size = 0
        with (
            pa.OSFile(str(self.work / "documents"), "wb") as sink,
            pa.ipc.new_stream(sink, self.draft_schema) as writer,
            Progress(f"ingest {self.job.name}", total=total / 1e6, unit="MB") as bar,
        ):

            def flush() -> None:
                nonlocal size
                if documents:
                    origins, all_texts = zip(*documents, strict=True)
                    wholes = ["\n".join(texts) for texts in all_texts]
                    keys.add(exact_keys(wholes), self.shingles.sketches(wholes) if self.shingles else None)
                    ids, sources, lines = zip(*origins, strict=True)
                    texts, *targets = zip(*all_texts, strict=True)
                    columns = [ids, texts, sources, *targets, lines]
                    writer.write_batch(pa.record_batch(columns, schema=self.draft_schema))
                documents.clear()
                size = 0

            def write_left_out() -> None:
                if left_out:
                    columns = [list(column) for column in zip(*left_out, strict=True)]
                    dropped.write_batch(pa.record_batch(columns, schema=DROPPED_SCHEMA))
                left_out.clear()

            for name, path in files.items():
                done, first = reading.consumed, vars(reading).copy()
                read = 0
                for number, raw, row_id in read_documents(path, self.job.source, reading):
                    read += 1
                    if name in self.files and read <= self.files[name][0]:
                        continue
                    document = [clean(text, strip_markup=settings.strip_markup) for text in raw]
                    origin = Origin(row_id or f"{name}:{number}", name, number)
                    if all(document) and len(document[0]) >= settings.min_characters:
                        documents.append((origin, document))
                        size += sum(map(len, document))
                    else:
                        reason = "too_short" if all(document) else "empty"
                        counts.dropped[reason] += 1
                        left_out.append((*origin, reason, None, None, None, None))
                    if size >= _BATCH_CHARACTERS or len(documents) == _BATCH_ROWS:
                        flush()
                    if len(left_out) == _BATCH_ROWS:
                        write_left_out()
                    if reading.consumed != done:
                        bar.advance((reading.consumed - done) / 1e6, documents=counts.documents + read)
                        done = reading.consumed
                self._count(name, read, reading, first)
            flush()
            write_left_out()

    def _count(self, name: str, documents: int, reading: Reading, first: Mapping[str, int]) -> None:
        counts, before = self.counts, self.files.get(name)
        bytes_and_lines = (getattr(reading, key) - first[key] for key in ("text_bytes", "bad_bytes", "bad_lines"))
        self.files[name] = [documents, *bytes_and_lines]
        names = ("documents", "raw_bytes", "bad_bytes", "bad_lines")
        for key, number, earlier in zip(names, self.files[name], before or [0] * 4, strict=True):
            setattr(counts, key, getattr(counts, key) + number - earlier)
        counts.files += before is None

    def _rows_of(self, duplicates: Duplicates) -> pa.RecordBatch:
        """The rows of dropped.parquet: every duplicate and the document it repeats, in the order of the documents."""
        numbers, inverse = np.unique(np.concatenate([duplicates.later, duplicates.earlier]), return_inverse=True)
        parts, first = [ORIGIN_SCHEMA.empty_table().drop(["heldout"])], 0
        for batch in self._origins():
            inside = numbers[slice(*np.searchsorted(numbers, [first, first + batch.num_rows]))] - first
            parts.append(pa.Table.from_batches([batch.take(pa.array(inside))]))
            first += batch.num_rows
        rows = pa.concat_tables(parts).combine_chunks().take(pa.array(inverse))
        count = len(duplicates.later)
        reasons = pa.array(np.where(duplicates.exact, "exact_duplicate", "near_duplicate"), pa.string())
        return pa.record_batch(
            [
                *(column.combine_chunks() for column in rows.slice(0, count).columns),
                reasons,
                *(column.combine_chunks() for column in rows.slice(count).columns),
                pa.array(duplicates.similarity, pa.float32()),
            ],
            schema=DROPPED_SCHEMA,
        )

    def _origins(self) -> Iterator[pa.RecordBatch]:
        columns = list(Origin._fields)
        for name in self.key_shards:
            yield from read_batches(self.draft.path / name, columns)
        yield from (batch.select(columns) for batch in self._documents())

    def _write(self, keys: KeyFiles, dropped: Flags, old: int) -> None:
        """Second pass: the kept documents to the shards of their split; their keys and origins to key shards."""
        limit = SHARD_BYTES
        writers = {split: ShardWriter(self.draft.path, split, schema=self.schema, limit=limit) for split in SPLITS}
        key_writer = ShardWriter(self.draft.path, "keys", schema=self.key_schema, limit=limit)
        heldout = self._heldout(keys, dropped, old)
        position = old
        for batch in self._documents():
            rows = slice(position, position + batch.num_rows)
            position = rows.stop
            kept, held = ~dropped[rows], heldout[rows]
            for split, writer in writers.items():
                mask = kept & (held if split == "heldout" else ~held)
                chosen = batch.filter(pa.array(mask)).select(self.schema.names)
                writer.write(chosen)
                self.counts.kept += chosen.num_rows
                self.counts.heldout += chosen.num_rows if split == "heldout" else 0
                for column in chosen.columns[1:2] + chosen.columns[3:]:
                    self.counts.characters += pc.sum(pc.utf8_length(column)).as_py() or 0
            columns = [packed_rows(keys.exact(rows)[kept])]
            if self.shingles:
                columns.append(packed_rows(keys.sketches(rows)[kept]))
            origins = batch.select(Origin._fields).filter(pa.array(kept)).columns
            key_writer.write(pa.record_batch([*columns, *origins, pa.array(held[kept])], schema=self.key_schema))
        for split, writer in writers.items():
            self.shards[split] = self.shards[split] + writer.close()
        self.key_shards = self.key_shards + key_writer.close()

    def _documents(self) -> Iterator[pa.RecordBatch]:
        # Read, not memory-mapped: mapped pages count as resident memory of the process.
        with pa.OSFile(str(self.work / "documents")) as source, pa.ipc.open_stream(source) as reader:
            yield from reader

    def _heldout(self, keys: KeyFiles, dropped: Flags, old: int) -> Flags:
        """Flags (n,) of the held-out documents: a function of the hash of each document's text alone.

        If that selects no document of a small corpus, the kept document with the smallest hash is held out.
        """
        share = self.job.settings.heldout
        bound = np.uint64(min(int(share * 2**64), 2**64 - 1))
        flags = np.zeros(keys.count, dtype=bool)
        smallest: list[tuple[int, int]] = []
        for rows in keys.ranges():
            hashes = keys.exact(rows)[:, 0]
            flags[rows] = hashes < bound
            new = np.flatnonzero(~dropped[rows] & (np.arange(rows.start, rows.stop) >= old))
            if new.size:
                least = int(new[np.argmin(hashes[new])])
                smallest.append((int(hashes[least]), rows.start + least))
        if share > 0 and smallest and not self.shards["heldout"]:
            flags[min(smallest)[1]] = True
        return flags
