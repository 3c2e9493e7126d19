"""The stage `ingest`: raw files of one corpus to clean, distinct documents, or pairs of texts.

Two passes, so that memory does not grow with the corpus: the first reads and cleans documents and writes them and their
keys to temporary files; then duplicates are found among the keys; the second writes the kept documents to the shards.
"""

from __future__ import annotations

import json
import shutil
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from components.artifacts import Draft, digest_file, write_atomic, writing
from components.errors import DataError
from components.formats.corpus import (
    KIND,
    PAIR_SCHEMA,
    SCHEMA,
    SPLITS,
    ShardWriter,
    language_of,
    prefix_of,
    previous,
    read_batches,
)
from components.formats.lines import Reading
from components.ingestion.cleaning import clean
from components.ingestion.counts import Counts
from components.ingestion.dedup import Flags, KeyFiles, Shingles, exact_keys
from components.ingestion.documents import ORIGIN_SCHEMA, DroppedWriter, Origin, Origins
from components.ingestion.readers import corpus_files, read_documents
from components.ingestion.removal import Removal, find_removal, key_of, remove
from components.progress import Progress
from components.settings.data import CorpusSource, ParallelSource
from components.settings.ingest import IngestSettings
from components.settings.section import Section

#: Incremented when the same raw text and settings give other documents or files; older corpora are then rewritten.
VERSION = 3
_BATCH_CHARACTERS = 4_000_000
_BATCH_ROWS = 8_192


class IngestJob(Section):
    """Inputs of the stage for one corpus. A pair is one document: its key is computed from both texts together.

    Attributes:
        name: of the corpus, for messages.
        source: the raw files and their columns.
        settings: cleaning, deduplication and sharding.
        output: directory to write.
        rebuild: why the whole corpus has to be written again; empty: only what has changed.
    """

    name: str
    source: CorpusSource | ParallelSource
    settings: IngestSettings
    output: Path
    rebuild: str = ""


def ingest(job: IngestJob) -> Path:
    """Write the corpus directory `job.output` from the raw files of `job.source`; returns it.

    Append-only: shards stay, only new files are read, and the new documents follow the old ones, whatever the file
    names. Of a missing or edited raw file, the shards that hold its removed documents are rewritten. Other settings, or
    the removal of half of the documents, cause a complete rewrite; the fact `rewritten` of the manifest has the reason.

    Raises:
        DataError: there are no raw files, one is damaged, or fewer than two documents are left.
    """
    files, ignored = corpus_files(job.source)
    root = Path(job.source.path) if Path(job.source.path).is_dir() else Path(job.source.path).parent
    try:
        digests = {path.relative_to(root).as_posix(): digest_file(path) for path in files}
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from error
    languages = job.source.languages if isinstance(job.source, CorpusSource) else {}
    recipe = {
        "version": VERSION,
        "settings": job.settings.model_dump(mode="json"),
        "columns": [*_columns(job.source), job.source.id],
        **({"languages": job.source.model_dump(mode="json")["languages"]} if languages else {}),
    }
    before = previous(job.output)
    reason = f"requested: {job.rebuild}" if before and job.rebuild else _reason_to_rewrite(before, recipe)
    removal = None
    if before is not None and reason is None:
        if before["files"] == digests:
            return job.output
        removal, reason = _removal(job, before, {name: root / name for name in digests}, digests)
    keep = before if reason is None else None
    with writing(job.output, kind=KIND, keep=keep is not None) as draft:
        _Run(job, draft, keep, removal).add({name: root / name for name in digests})
        draft.facts |= {
            "corpus": job.name,
            "recipe": recipe,
            "files": digests,
            "ignored": [path.relative_to(root).as_posix() for path in ignored],
            "rewritten": reason,
        }
        if removal is not None:
            print(f"ingest {job.name}: {removal.words()}")
        print(f"ingest {job.name}: {Counts(**draft.facts['counts']).summary()}")
    return job.output


def _removal(
    job: IngestJob, before: dict[str, Any], files: dict[str, Path], digests: dict[str, str]
) -> tuple[Removal | None, str | None]:
    """What is removed from the corpus, or why it is written again as a whole."""
    gone = [name for name in before["files"] if name not in digests]
    edited = {name: files[name] for name, digest in before["files"].items() if digests.get(name, digest) != digest}
    if not gone and not edited:
        return None, None
    removal = find_removal(job.output, before, gone=gone, edited=edited, source=job.source, settings=job.settings)
    reason = f"raw file gone: {gone[0]}" if gone else f"raw file changed: {next(iter(edited))}"
    counts = Counts(**before["counts"])
    # Shards of few documents would be left; or none to measure perplexity.
    if 2 * removal.kept >= counts.kept or 0 < counts.heldout == removal.heldout:
        return None, reason
    return removal, None


def _columns(source: CorpusSource | ParallelSource) -> list[str]:
    """The text columns of a raw file."""
    return [source.text] if isinstance(source, CorpusSource) else [source.source, source.target]


def _reason_to_rewrite(before: dict[str, Any] | None, recipe: dict[str, Any]) -> str | None:
    """Why the earlier corpus cannot be extended; None if it can."""
    if before is None:
        return "first run"
    if before["recipe"].get("version") != recipe["version"]:
        return "written by another version"
    return "settings changed" if before["recipe"] != recipe else None


class _Run:
    """One run over new and edited raw files. Documents that stay from earlier runs are only compared with, never
    dropped."""

    def __init__(
        self, job: IngestJob, draft: Draft, before: dict[str, Any] | None, removal: Removal | None = None
    ) -> None:
        self.job, self.draft, self.removal = job, draft, removal
        #: Raw file -> its documents, bytes, replaced bytes and lines.
        self.files: dict[str, list[int]] = dict(before["file_counts"]) if before else {}
        self.shards: dict[str, list[str]] = before["shards"] if before else {split: [] for split in SPLITS}
        self.key_shards: list[str] = before["keys"] if before else []
        self.counts = Counts(**before["counts"]) if before else Counts()
        near = job.settings.near_duplicates
        self.shingles = Shingles(ngram=near.ngram, permutations=near.permutations) if near else None
        keys = [("exact", pa.binary(16))] + ([("sketch", pa.binary(2 * near.permutations))] if near else [])
        self.key_schema = pa.schema([*keys, *ORIGIN_SCHEMA])
        self.schema = SCHEMA if isinstance(job.source, CorpusSource) else PAIR_SCHEMA
        self.draft_schema = self.schema.append(pa.field("line", pa.int64()))
        self.work = draft.path / ".work"
        source = job.source
        #: Languages of the corpus; None is that of a corpus in one language.
        self.languages: list[str | None] = [None]
        if isinstance(source, CorpusSource) and source.languages:
            self.languages = [*source.languages]
        #: (n,) index in `languages` of each new document's language.
        self.codes: npt.NDArray[np.uint16] = np.empty(0, np.uint16)

    def add(self, files: dict[str, Path]) -> None:
        """Remove, read, compare and write; leaves shards, keys, dropped.parquet, metrics.json and facts in the draft.

        Args:
            files: all raw files, by name; those that are unchanged are not read.
        """
        if self.removal is not None:
            self._remove(self.removal)
        again = {origin.source for origin in self.removal.compared} if self.removal else set()
        files = {name: path for name, path in files.items() if name not in self.files or name in again}
        near = self.job.settings.near_duplicates
        permutations, rows = (near.permutations, near.rows) if near else (0, 1)
        try:
            with (
                KeyFiles(self.work, permutations=permutations, rows=rows) as keys,
                Origins(self.work) as origins,
                DroppedWriter(self.draft.path, without=self.removal.takes if self.removal else None) as dropped,
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
        self.draft.facts |= {"file_counts": self.files}
        metrics = self.counts.metrics() | self._language_metrics()
        write_atomic(self.draft.path / "metrics.json", json.dumps(metrics, indent=1) + "\n")

    def _language_metrics(self) -> dict[str, Any]:
        """Documents of each language by split; empty for a corpus in one language."""
        found: dict[str, Any] = {language: dict.fromkeys(SPLITS, 0) for language in self.languages if language}
        for split, names in self.shards.items():
            for name in names:
                if (language := language_of(name)) is not None:
                    found[language][split] += pq.read_metadata(self.draft.path / name).num_rows
        return {"languages": found} if found else {}

    def _remove(self, removal: Removal) -> None:
        """Rewrite the shards that hold removed documents, and correct the counts."""
        self.shards, self.key_shards = remove(self.draft.path, removal, shards=self.shards, keys=self.key_shards)
        counts = self.counts
        counts.kept -= removal.kept
        counts.heldout -= removal.heldout
        counts.characters -= removal.characters
        for reason, number in removal.dropped.items():
            counts.dropped[reason] -= number
        for name in removal.files:
            documents, raw_bytes, bad_bytes, bad_lines = self.files.pop(name)
            counts.documents -= documents
            counts.raw_bytes -= raw_bytes
            counts.bad_bytes -= bad_bytes
            counts.bad_lines -= bad_lines
            counts.files -= 1

    def _too_few(self) -> str:
        return (
            f"{self.job.source.path}: {self.counts.summary()}; a corpus needs at least 2 different documents, "
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
        codes = array("H")
        source = self.job.source
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
                done, first = reading.consumed, vars(reading).copy()
                again = name in self.files
                documents_of_file = 0
                language = source.language_of(name) if isinstance(source, CorpusSource) else None
                code = self.languages.index(language)
                for number, raw, row_id in read_documents(path, self.job.source, reading):
                    documents_of_file += 1
                    origin = Origin(row_id or f"{name}:{number}", name, number)
                    if again and self.removal is not None and origin not in self.removal.compared:
                        continue
                    document = [clean(text, strip_markup=settings.strip_markup) for text in raw]
                    if not all(document):
                        counts.dropped["empty"] += 1
                        dropped.add(origin, "empty")
                    elif len(document[0]) < settings.min_characters:
                        counts.dropped["too_short"] += 1
                        dropped.add(origin, "too_short")
                    elif self._stays(origin, document):
                        continue
                    else:
                        batch.append(origin)
                        documents.append(document)
                        codes.append(code)
                        size += sum(map(len, document))
                        if size >= _BATCH_CHARACTERS or len(documents) == _BATCH_ROWS:
                            flush()
                    if reading.consumed != done:
                        bar.advance((reading.consumed - done) / 1e6, documents=counts.documents + documents_of_file)
                        done = reading.consumed
                if not again:
                    self._count(name, documents_of_file, reading, first)
            flush()
        self.codes = np.frombuffer(codes, dtype=np.uint16) if codes else self.codes

    def _stays(self, origin: Origin, document: list[str]) -> bool:
        """Whether a document of an edited file is in the corpus already."""
        removal = self.removal
        return removal is not None and origin.source in removal.edited and removal.stays(origin, key_of(document))

    def _count(self, name: str, documents: int, reading: Reading, first: Mapping[str, int]) -> None:
        """Add the totals of a raw file; `first` is `reading` before the file."""
        read = [getattr(reading, key) - first[key] for key in ("text_bytes", "bad_bytes", "bad_lines")]
        self.files[name] = [documents, *read]
        counts = self.counts
        counts.documents += documents
        counts.raw_bytes += read[0]
        counts.bad_bytes += read[1]
        counts.bad_lines += read[2]
        counts.files += 1

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
        # Every shard is in one language, so that later stages know the language of a document by its shard.
        writers = {
            (split, language): ShardWriter(self.draft.path, prefix_of(split, language), schema=self.schema, limit=limit)
            for split in SPLITS
            for language in self.languages
        }
        key_writer = ShardWriter(self.draft.path, "keys", schema=self.key_schema, limit=limit)
        heldout = self._heldout(keys, dropped, old)
        position = old
        for batch in self._documents():
            rows = slice(position, position + batch.num_rows)
            position = rows.stop
            kept, held = ~dropped[rows], heldout[rows]
            codes = self.codes[rows.start - old : rows.stop - old]
            for (split, language), writer in writers.items():
                mask = kept & (held if split == "heldout" else ~held) & (codes == self.languages.index(language))
                chosen = batch.filter(pa.array(mask)).select(self.schema.names)
                writer.write(chosen)
                self.counts.kept += chosen.num_rows
                self.counts.heldout += chosen.num_rows if split == "heldout" else 0
                for column in chosen.columns[1:2] + chosen.columns[3:]:
                    self.counts.characters += pc.sum(pc.utf8_length(column)).as_py() or 0
            packed = [_pack(keys.exact(rows)[kept])]
            if self.shingles:
                packed.append(_pack(keys.sketches(rows)[kept]))
            origins = batch.select(Origin._fields).filter(pa.array(kept)).columns
            key_writer.write(pa.record_batch([*packed, *origins, pa.array(held[kept])], schema=self.key_schema))
        for (split, _), writer in writers.items():
            self.shards[split] = self.shards[split] + writer.close()
        self.key_shards = self.key_shards + key_writer.close()

    def _documents(self) -> Iterator[pa.RecordBatch]:
        # Read, not memory-mapped: mapped pages count as resident memory of the process.
        with pa.OSFile(str(self.work / "documents")) as source, pa.ipc.open_stream(source) as reader:
            yield from reader

    def _heldout(self, keys: KeyFiles, dropped: Flags, old: int) -> Flags:
        """Flags (n,) of the held-out documents: a function of the hash of each document's text alone.

        If that selects no document of a small corpus, or of one of its languages, the kept document with the smallest
        hash is held out.
        """
        share = self.job.settings.heldout
        bound = np.uint64(min(int(share * 2**64), 2**64 - 1))
        flags = np.zeros(keys.count, dtype=bool)
        smallest: dict[str | None, tuple[int, int]] = {}
        missing = {*self.languages} - {language_of(name) for name in self.shards["heldout"]}
        for rows in keys.ranges():
            hashes = keys.exact(rows)[:, 0]
            flags[rows] = hashes < bound
            new = np.flatnonzero(~dropped[rows])
            new = new[new + rows.start >= old]
            codes = self.codes[new + rows.start - old]
            for language in missing:
                own = new[codes == self.languages.index(language)]
                if own.size:
                    least = int(own[np.argmin(hashes[own])])
                    found = (int(hashes[least]), rows.start + least)
                    smallest[language] = min(smallest.get(language, found), found)
        if share > 0:
            flags[[document for _, document in smallest.values()]] = True
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
