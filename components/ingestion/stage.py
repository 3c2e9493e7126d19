"""The ingest stage: raw files of one corpus -> clean, distinct documents, or pairs of them.

Two passes, so that memory does not depend on the size of the corpus: the first reads, cleans and writes each document
and its keys to temporary files; then duplicates are found among the keys; the second writes the documents that stay.
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
from components.ingestion.readers import raw_files, read_pairs, read_texts
from components.progress import Progress
from components.settings.data import CorpusSource, ParallelSource
from components.settings.ingest import IngestSettings
from components.settings.section import Section

#: Raised when the same raw text and settings give other documents: older corpora are then written anew.
VERSION = 1
_BATCH_CHARACTERS = 4_000_000
_BATCH_ROWS = 8_192
#: Reasons for which a document is dropped, in the order in which they are looked for.
REASONS = ("empty", "too_short", "exact_duplicate", "near_duplicate")


class IngestJob(Section):
    """One corpus: where its raw text lies, how it is cleaned, where the shards go.

    A pair counts as one document: it is compared with others, and falls into a split, by its two texts together.
    """

    name: str
    source: CorpusSource | ParallelSource
    settings: IngestSettings
    output: Path


@dataclass
class _Counts:
    """Totals over all runs that have added to the corpus."""

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
        """Flat, for metrics.json."""
        numbers = {name: value for name, value in vars(self).items() if name != "dropped"}
        return numbers | {f"dropped_{reason}": count for reason, count in self.dropped.items()}


def ingest(job: IngestJob) -> Path:
    """Write the corpus directory `job.output` from the raw files of `job.source`; returns it.

    Append-only: if every raw file of an earlier run is still there unchanged, its shards stay and only new files are
    read (their documents follow the others, whatever the file names). A raw file that is gone or has changed, or
    other settings, write everything anew; the manifest's facts say which (`rewritten`).

    Raises:
        DataError: no raw files, a damaged one, or fewer than two documents left.
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
    """The columns of a raw file that hold text."""
    return [source.text] if isinstance(source, CorpusSource) else [source.source, source.target]


def _summary(counts: dict[str, Any]) -> str:
    """The counts as one line: what was read, kept, dropped for which reason, and whether bytes were replaced."""
    dropped = [f"{number:,} {reason.replace('_', ' ')}" for reason, number in counts["dropped"].items() if number]
    return (
        f"{counts['documents']:,} documents read, {counts['kept']:,} kept, {counts['heldout']:,} of them held out"
        + (f"; dropped: {', '.join(dropped)}" if dropped else "")
        + (f"; {counts['bad_bytes']:,} bytes that are no UTF-8 were replaced" if counts["bad_bytes"] else "")
    )


def _reason_to_rewrite(before: dict[str, Any] | None, recipe: dict[str, Any], digests: dict[str, str]) -> str | None:
    """Why the earlier corpus cannot be added to; None if it can."""
    if before is None:
        return "first run"
    if before["recipe"] != recipe:
        return "settings changed"
    for name, digest in before["files"].items():
        if name not in digests:
            return f"raw file gone: {name}"
        if digests[name] != digest:
            return f"raw file changed: {name}"
    return None


class _Run:
    """One run over new raw files, beside the documents kept by earlier ones."""

    def __init__(self, job: IngestJob, draft: Draft, before: dict[str, Any] | None) -> None:
        self.job, self.draft = job, draft
        self.shards: dict[str, list[str]] = before["shards"] if before else {split: [] for split in SPLITS}
        self.key_shards: list[str] = before["keys"] if before else []
        self.counts = _Counts(**before["counts"]) if before else _Counts()
        near = job.settings.near_duplicates
        self.permutations = near.permutations if near else 0
        self.shingles = Shingles(ngram=near.ngram, permutations=near.permutations) if near else None
        self.key_schema = pa.schema([("exact", pa.binary(16))])
        if near:
            self.key_schema = self.key_schema.append(pa.field("sketch", pa.binary(2 * near.permutations)))
        self.schema = SCHEMA if isinstance(job.source, CorpusSource) else PAIR_SCHEMA
        self.work = draft.path / ".work"

    def add(self, files: dict[str, Path]) -> None:
        """Read, compare and write; leaves shards, keys, metrics.json and facts in the draft."""
        try:
            with KeyFiles(self.work, permutations=self.permutations) as keys:
                self._recall(keys)
                old = keys.count
                self._read(files, keys)
                dropped = self._find_duplicates(keys, old)
                self._write(keys, dropped, old)
        finally:
            shutil.rmtree(self.work, ignore_errors=True)
        if self.counts.kept < 2 or self.counts.kept == self.counts.heldout:
            raise DataError(self._too_few())
        self.draft.facts |= {"shards": self.shards, "keys": self.key_shards, "counts": vars(self.counts)}
        write_atomic(self.draft.path / "metrics.json", json.dumps(self.counts.metrics(), indent=1) + "\n")

    def _too_few(self) -> str:
        return (
            f"{self.job.source.path}: {_summary(vars(self.counts))}; a corpus needs at least 2 different documents, "
            "one to train on: one object a line in jsonl, one row in csv, tsv or parquet, documents apart by two empty "
            "lines in txt"
        )

    def _recall(self, keys: KeyFiles) -> None:
        """The keys of the documents that earlier runs kept come first, so none of them is dropped now."""
        for name in self.key_shards:
            for batch in read_batches(self.draft.path / name, self.key_schema.names):
                sketches = _unpack(batch.column(1), np.uint16) if self.permutations else None
                keys.add(_unpack(batch.column(0), np.uint64), sketches)

    def _read(self, files: dict[str, Path], keys: KeyFiles) -> None:
        """First pass: documents to a temporary Arrow file, their keys to `keys`."""
        settings, counts, reading = self.job.settings, self.counts, Reading()
        total = sum(path.stat().st_size for path in files.values())
        ids: list[str] = []
        documents: list[list[str]] = []
        sources: list[str] = []
        size = 0
        with (
            pa.OSFile(str(self.work / "documents"), "wb") as sink,
            pa.ipc.new_stream(sink, self.schema) as writer,
            Progress(f"ingest {self.job.name}", total=total / 1e6, unit="MB") as bar,
        ):

            def flush() -> None:
                nonlocal size
                if documents:
                    wholes = ["\n".join(texts) for texts in documents]
                    keys.add(exact_keys(wholes), self.shingles.sketches(wholes) if self.shingles else None)
                    texts, *targets = zip(*documents, strict=True)
                    writer.write_batch(pa.record_batch([ids, texts, sources, *targets], schema=self.schema))
                for column in (ids, documents, sources):
                    column.clear()
                size = 0

            for name, path in files.items():
                done = reading.consumed
                for number, raw, row_id in self._raw_documents(path, reading):
                    counts.documents += 1
                    document = [clean(text, strip_markup=settings.strip_markup) for text in raw]
                    if not all(document):
                        counts.dropped["empty"] += 1
                    elif len(document[0]) < settings.min_characters:
                        counts.dropped["too_short"] += 1
                    else:
                        ids.append(row_id or f"{name}:{number}")
                        documents.append(document)
                        sources.append(name)
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
        """(line, text or text and target, id) of every document of a raw file."""
        source = self.job.source
        if isinstance(source, CorpusSource):
            for number, text, row_id in read_texts(path, source, reading):
                yield number, [text], row_id
        else:
            for number, text, target, row_id in read_pairs(path, source, reading):
                yield number, [text, target], row_id

    def _find_duplicates(self, keys: KeyFiles, old: int) -> Flags:
        """Whether each document is dropped, as a twin of an earlier one (kept or itself dropped)."""
        exact = keys.exact_duplicates()
        self.counts.dropped["exact_duplicate"] += int(exact.sum())
        near = self.job.settings.near_duplicates
        if near is None:
            return exact
        flags = exact.copy()
        for later, _ in keys.near_pairs(near.threshold, without=flags):
            flags[later[later >= old]] = True
        self.counts.dropped["near_duplicate"] += int(flags.sum() - exact.sum())
        return flags

    def _write(self, keys: KeyFiles, dropped: Flags, old: int) -> None:
        """Second pass: the documents that stay, to the shards of their split, and their keys."""
        limit = self.job.settings.shard_megabytes * 1_000_000
        writers = {split: ShardWriter(self.draft.path, split, schema=self.schema, limit=limit) for split in SPLITS}
        key_writer = ShardWriter(self.draft.path, "keys", schema=self.key_schema, limit=limit)
        heldout = self._heldout(keys, dropped, old)
        position = old
        for batch in self._documents():
            rows = slice(position, position + batch.num_rows)
            position = rows.stop
            stays, apart = ~dropped[rows], heldout[rows]
            for split, mask in zip(SPLITS, (stays & ~apart, stays & apart), strict=True):
                chosen = batch.filter(pa.array(mask))
                writers[split].write(chosen)
                self.counts.kept += chosen.num_rows
                self.counts.heldout += chosen.num_rows if split == "heldout" else 0
                for column in chosen.columns[1:2] + chosen.columns[3:]:
                    self.counts.characters += pc.sum(pc.utf8_length(column)).as_py() or 0
            packed = [_pack(keys.exact(rows)[stays])]
            if self.permutations:
                packed.append(_pack(keys.sketches(rows)[stays]))
            key_writer.write(pa.record_batch(packed, schema=self.key_schema))
        for split, writer in writers.items():
            self.shards[split] = self.shards[split] + writer.close()
        self.key_shards = self.key_shards + key_writer.close()

    def _documents(self) -> Iterator[pa.RecordBatch]:
        # Not memory-mapped: mapped pages would count as this process's memory.
        with pa.OSFile(str(self.work / "documents")) as source, pa.ipc.open_stream(source) as reader:
            yield from reader

    def _heldout(self, keys: KeyFiles, dropped: Flags, old: int) -> Flags:
        """Whether a document is set apart: a hash of its text decides, so no other document matters.

        A small corpus of which chance sets nothing apart gives up the document with the smallest hash.
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
    """Rows of numbers as fixed-width binary values."""
    rows = np.ascontiguousarray(rows)
    width = rows.dtype.itemsize * rows.shape[1]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), [None, pa.py_buffer(rows.data)])


def _unpack(column: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    width = column.type.byte_width
    buffer = column.buffers()[1]
    rows = np.frombuffer(buffer, dtype=np.uint8, count=width * len(column), offset=width * column.offset)
    return rows.view(dtype).reshape(len(column), -1)
