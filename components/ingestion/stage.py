"""The stage `ingest`: raw files of one corpus to clean, distinct documents, or pairs of texts.

Two passes, so that memory does not grow with the corpus: the first reads and cleans documents and writes them and their
keys to temporary files; then duplicates are found among the keys; the second writes the kept documents to the shards.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.artifacts import Draft, digest_file, write_atomic, writing
from components.errors import DataError
from components.formats.corpus import KIND, PAIR_SCHEMA, SCHEMA, SPLITS, ShardWriter, previous, read_batches
from components.formats.lines import Reading
from components.ingestion.cleaning import clean
from components.ingestion.dedup import Flags, KeyFiles, Shingles, exact_keys
from components.ingestion.documents import ORIGIN_SCHEMA, DroppedWriter, Origin, Origins
from components.ingestion.readers import raw_files, read_pairs, read_texts
from components.progress import Progress
from components.settings.data import CorpusSource, ParallelSource
from components.settings.ingest import IngestSettings
from components.settings.section import Section

#: Incremented when the same raw text and settings give other documents or files; older corpora are then rewritten.
VERSION = 2
_BATCH_CHARACTERS = 4_000_000
_BATCH_ROWS = 8_192
#: Reasons for which a document is dropped, in the order in which they are checked.
REASONS = ("empty", "too_short", "exact_duplicate", "near_duplicate")


class IngestJob(Section):
    """Inputs of the stage for one corpus. A pair is one document: its key is computed from both texts together.

    Attributes:
        name: of the corpus, for messages.
        source: the raw files and their columns.
        settings: cleaning, deduplication and sharding.
        output: directory to write.
    """

    name: str
    source: CorpusSource | ParallelSource
    settings: IngestSettings
    output: Path


@dataclass
class _Counts:
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


def ingest(job: IngestJob) -> Path:
    """Write the corpus directory `job.output` from the raw files of `job.source`; returns it.

    Append-only: if all raw files of the earlier runs are unchanged, their shards stay and only new files are read; the
    new documents follow the old ones, whatever the file names. A missing or changed raw file, or other settings, cause
    a complete rewrite; the fact `rewritten` of the manifest has the reason.

    Raises:
        DataError: there are no raw files, one is damaged, or fewer than two documents are left.
    """
    files, ignored = raw_files(Path(job.source.path))
    root = Path(job.source.path) if Path(job.source.path).is_dir() else Path(job.source.path).parent
    try:
        digests = {path.relative_to(root).as_posix(): digest_file(path) for path in files}
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from error
    recipe = {
        "version": VERSION,
        "settings": job.settings.model_dump(mode="json"),
        "columns": [*_columns(job.source), job.source.id],
    }
    before = previous(job.output)
    reason = _reason_to_rewrite(before, recipe, digests)
    if before is not None and reason is None and before["files"] == digests:
        return job.output
    keep = before if reason is None else None
    new = {name: root / name for name in digests if keep is None or name not in keep["files"]}
    with writing(job.output, kind=KIND, keep=keep is not None) as draft:
        _Run(job, draft, keep).add(new)
        draft.facts |= {
            "corpus": job.name,
            "recipe": recipe,
            "files": digests,
            "ignored": [path.relative_to(root).as_posix() for path in ignored],
            "rewritten": reason,
        }
        print(f"ingest {job.name}: {_summary(draft.facts['counts'])}")
    return job.output


def _columns(source: CorpusSource | ParallelSource) -> list[str]:
    """The text columns of a raw file."""
    return [source.text] if isinstance(source, CorpusSource) else [source.source, source.target]


def _summary(counts: dict[str, Any]) -> str:
    """The counts as one line: documents read, kept and dropped by reason; bytes replaced."""
    dropped = [f"{number:,} {reason.replace('_', ' ')}" for reason, number in counts["dropped"].items() if number]
    return (
        f"{counts['documents']:,} documents read, {counts['kept']:,} kept, {counts['heldout']:,} of them held out"
        + (f"; dropped: {', '.join(dropped)}" if dropped else "")
        + (f"; {counts['bad_bytes']:,} bytes that are not UTF-8 were replaced" if counts["bad_bytes"] else "")
    )


def _reason_to_rewrite(before: dict[str, Any] | None, recipe: dict[str, Any], digests: dict[str, str]) -> str | None:
    """Why the earlier corpus cannot be extended; None if it can."""
    if before is None:
        return "first run"
    if before["recipe"].get("version") != recipe["version"]:
        return "written by another version"
    if before["recipe"] != recipe:
        return "settings changed"
    for name, digest in before["files"].items():
        if name not in digests:
            return f"raw file gone: {name}"
        if digests[name] != digest:
            return f"raw file changed: {name}"
    return None


class _Run:
    """One run over new raw files. Documents kept by earlier runs are only compared with, never dropped."""

    def __init__(self, job: IngestJob, draft: Draft, before: dict[str, Any] | None) -> None:
        self.job, self.draft = job, draft
        self.shards: dict[str, list[str]] = before["shards"] if before else {split: [] for split in SPLITS}
        self.key_shards: list[str] = before["keys"] if before else []
        self.counts = _Counts(**before["counts"]) if before else _Counts()
        near = job.settings.near_duplicates
        self.shingles = Shingles(ngram=near.ngram, permutations=near.permutations) if near else None
        keys = [("exact", pa.binary(16))] + ([("sketch", pa.binary(2 * near.permutations))] if near else [])
        self.key_schema = pa.schema([*keys, *ORIGIN_SCHEMA])
        self.schema = SCHEMA if isinstance(job.source, CorpusSource) else PAIR_SCHEMA
        self.draft_schema = self.schema.append(pa.field("line", pa.int64()))
        self.work = draft.path / ".work"

    def add(self, files: dict[str, Path]) -> None:
        """Read, compare and write; leaves shards, keys, dropped.parquet, metrics.json and facts in the draft."""
        near = self.job.settings.near_duplicates
        permutations, rows = (near.permutations, near.rows) if near else (0, 1)
        try:
            with (
                KeyFiles(self.work, permutations=permutations, rows=rows) as keys,
                Origins(self.work) as origins,
                DroppedWriter(self.draft.path) as dropped,
            ):
                self._recall(keys, origins)
                old = keys.count
                self._read(files, keys, origins, dropped)
                exact, alike = keys.find_duplicates(threshold=near.threshold if near else 1.0, first=old)
                self.counts.dropped["exact_duplicate"] += int(exact.sum())
                self.counts.dropped["near_duplicate"] += int(alike.sum())
                self._record_duplicates(keys, origins, dropped, exact=exact, alike=alike)
                self._write(keys, exact | alike, old)
        finally:
            shutil.rmtree(self.work, ignore_errors=True)
        if self.counts.kept < 2 or self.counts.kept == self.counts.heldout:
            raise DataError(self._too_few())
        self.draft.facts |= {"shards": self.shards, "keys": self.key_shards, "counts": vars(self.counts)}
        write_atomic(self.draft.path / "metrics.json", json.dumps(self.counts.metrics(), indent=1) + "\n")

    def _too_few(self) -> str:
        return (
            f"{self.job.source.path}: {_summary(vars(self.counts))}; a corpus needs at least 2 different documents, "
            "one of them to train on; a document is a line in jsonl, a row in csv, tsv or parquet, and in txt a block "
            "of text followed by two empty lines"
        )

    def _recall(self, keys: KeyFiles, origins: Origins) -> None:
        """Add the documents that earlier runs kept, before the new ones, so that none of them is dropped."""
        columns = [name for name in self.key_schema.names if name != "heldout"]
        for name in self.key_shards:
            for batch in read_batches(self.draft.path / name, columns):
                sketches = _unpack(batch.column("sketch"), np.uint16) if self.shingles else None
                keys.add(_unpack(batch.column("exact"), np.uint64), sketches)
                values = (batch.column(name).to_pylist() for name in Origin._fields)
                origins.add([Origin(*value) for value in zip(*values, strict=True)])

    def _read(self, files: dict[str, Path], keys: KeyFiles, origins: Origins, dropped: DroppedWriter) -> None:
        """First pass: documents to a temporary Arrow file, their keys to `keys`, their origins to `origins`."""
        settings, counts, reading = self.job.settings, self.counts, Reading()
        total = sum(path.stat().st_size for path in files.values())
        batch: list[Origin] = []
        documents: list[list[str]] = []
        size = 0
        with (
            pa.OSFile(str(self.work / "documents"), "wb") as sink,
            pa.ipc.new_stream(sink, self.draft_schema) as writer,
            Progress(f"ingest {self.job.name}", total=total / 1e6, unit="MB") as bar,
        ):

            def flush() -> None:
                nonlocal size
                if documents:
                    wholes = ["\n".join(texts) for texts in documents]
                    keys.add(exact_keys(wholes), self.shingles.sketches(wholes) if self.shingles else None)
                    origins.add(batch)
                    texts, *targets = zip(*documents, strict=True)
                    ids, sources, lines = zip(*batch, strict=True)
                    writer.write_batch(
                        pa.record_batch([ids, texts, sources, *targets, lines], schema=self.draft_schema)
                    )
                batch.clear()
                documents.clear()
                size = 0

            for name, path in files.items():
                done = reading.consumed
                for number, raw, row_id in self._raw_documents(path, reading):
                    counts.documents += 1
                    origin = Origin(row_id or f"{name}:{number}", name, number)
                    document = [clean(text, strip_markup=settings.strip_markup) for text in raw]
                    if not all(document):
                        counts.dropped["empty"] += 1
                        dropped.add(origin, "empty")
                    elif len(document[0]) < settings.min_characters:
                        counts.dropped["too_short"] += 1
                        dropped.add(origin, "too_short")
                    else:
                        batch.append(origin)
                        documents.append(document)
                        size += sum(map(len, document))
                        if size >= _BATCH_CHARACTERS or len(documents) == _BATCH_ROWS:
                            flush()
                    if reading.consumed != done:
                        bar.advance((reading.consumed - done) / 1e6, documents=counts.documents)
                        done = reading.consumed
                counts.files += 1
            flush()
        counts.raw_bytes += reading.text_bytes
        counts.bad_bytes += reading.bad_bytes
        counts.bad_lines += reading.bad_lines

    def _raw_documents(self, path: Path, reading: Reading) -> Iterator[tuple[int, list[str], str | None]]:
        """(line, [text] or [text, target], id) of every document of a raw file."""
        source = self.job.source
        if isinstance(source, CorpusSource):
            for number, text, row_id in read_texts(path, source, reading):
                yield number, [text], row_id
        else:
            for number, text, target, row_id in read_pairs(path, source, reading):
                yield number, [text, target], row_id

    def _record_duplicates(
        self, keys: KeyFiles, origins: Origins, dropped: DroppedWriter, *, exact: Flags, alike: Flags
    ) -> None:
        """Write every duplicate and its twin to dropped.parquet, in the order of the documents."""
        for rows in keys.ranges():
            twins, similarity = keys.twins(rows)
            for row in np.flatnonzero(exact[rows] | alike[rows]).tolist():
                reason = "exact_duplicate" if exact[rows.start + row] else "near_duplicate"
                twin = origins[int(twins[row])]
                dropped.add(origins[rows.start + row], reason, twin, float(similarity[row]))

    def _write(self, keys: KeyFiles, dropped: Flags, old: int) -> None:
        """Second pass: the kept documents to the shards of their split; their keys and origins to key shards."""
        limit = self.job.settings.shard_megabytes * 1_000_000
        writers = {split: ShardWriter(self.draft.path, split, schema=self.schema, limit=limit) for split in SPLITS}
        key_writer = ShardWriter(self.draft.path, "keys", schema=self.key_schema, limit=limit)
        heldout = self._heldout(keys, dropped, old)
        position = old
        for batch in self._documents():
            rows = slice(position, position + batch.num_rows)
            position = rows.stop
            kept, held = ~dropped[rows], heldout[rows]
            for split, mask in zip(SPLITS, (kept & ~held, kept & held), strict=True):
                chosen = batch.filter(pa.array(mask)).select(self.schema.names)
                writers[split].write(chosen)
                self.counts.kept += chosen.num_rows
                self.counts.heldout += chosen.num_rows if split == "heldout" else 0
                for column in chosen.columns[1:2] + chosen.columns[3:]:
                    self.counts.characters += pc.sum(pc.utf8_length(column)).as_py() or 0
            packed = [_pack(keys.exact(rows)[kept])]
            if self.shingles:
                packed.append(_pack(keys.sketches(rows)[kept]))
            origins = batch.select(Origin._fields).filter(pa.array(kept)).columns
            key_writer.write(pa.record_batch([*packed, *origins, pa.array(held[kept])], schema=self.key_schema))
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
        smallest: tuple[int, int] | None = None
        for rows in keys.ranges():
            hashes = keys.exact(rows)[:, 0]
            flags[rows] = hashes < bound
            new = np.flatnonzero(~dropped[rows])
            new = new[new + rows.start >= old]
            if new.size:
                least = int(new[np.argmin(hashes[new])])
                found = (int(hashes[least]), rows.start + least)
                smallest = min(smallest, found) if smallest else found
        if share > 0 and self.counts.heldout == 0 and smallest is not None:
            flags[smallest[1]] = True
        return flags


def _pack(rows: npt.NDArray[Any]) -> pa.Array:
    """(n, width) numbers as n fixed-width binary values."""
    rows = np.ascontiguousarray(rows)
    width = rows.dtype.itemsize * rows.shape[1]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), [None, pa.py_buffer(rows.data)])


def _unpack(column: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The inverse of `_pack`."""
    width = column.type.byte_width
    buffer = column.buffers()[1]
    rows = np.frombuffer(buffer, dtype=np.uint8, count=width * len(column), offset=width * column.offset)
    return rows.view(dtype).reshape(len(column), -1)
