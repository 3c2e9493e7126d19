"""The stage `ingest`: raw files of one corpus to clean, distinct documents, or pairs of texts.

The raw files are divided into parts. Every part is read and cleaned (`components.data.ingestion.parts`), duplicates are
found among the keys of all parts (`components.data.ingestion.duplicates`), and every part writes shards of its kept
documents. Parts are steps that may run at the same time (`components.cluster.shards`); this module joins their results.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from components.cluster.shards import Steps, Work, digest_of, sharded
from components.core.artifacts import Draft, digest_file, digest_text, write_atomic, writing
from components.core.digests import kept_digests
from components.core.errors import DataError
from components.core.progress import Progress
from components.data.formats.corpus import KIND, SPLITS, previous, read_batches
from components.data.ingestion.dedup import Flags
from components.data.ingestion.documents import DROPPED_SCHEMA, Origin, dropped_writer
from components.data.ingestion.duplicates import PAIR, Pairs, Part, find_duplicates, joined_keys
from components.data.ingestion.parts import (
    JUDGED,
    SHARD_BYTES,
    RawFile,
    ReadPart,
    WritePart,
    divided,
    read_part,
    write_part,
    written,
)
from components.data.ingestion.readers import raw_files
from components.data.tasks.judged import read_judged
from components.settings.cluster import ClusterSettings
from components.settings.data import CorpusSource, IngestSettings, ParallelSource
from components.settings.formats import suffix_of
from components.settings.section import Section

#: Incremented when the same raw text and settings give other documents or files; older corpora are then rewritten.
VERSION = 4
#: Reasons for which a document is dropped, in the order in which they are checked.
REASONS = ("empty", "too_short", JUDGED, "exact_duplicate", "near_duplicate")


class IngestJob(Section):
    """Inputs of the stage for one corpus. A pair is one document: its key is computed from both texts together.

    Attributes:
        judged: task of the run -> texts of the rows on which its scores are computed. Documents that repeat one are
            left out, so that no language model has read them.
        code: digest of the code that the stage can reach, part of the keys of its steps.
        rebuild: why the whole corpus has to be written again; empty: only what was added is read.
    """

    name: str
    source: CorpusSource | ParallelSource
    settings: IngestSettings
    judged: dict[str, Path] = Field(default_factory=dict)
    output: Path
    cluster: ClusterSettings = ClusterSettings()
    code: str = ""
    rebuild: str = ""


_JUDGED = (
    "rows of dev, of test and of the label budgets are no text for a language model, because scores are computed on "
    "them; name further text in data.unlabelled, or budgets that leave rows of train (data.tasks.NAME.budgets)"
)


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
        digests = dict(zip(paths, kept_digests(list(paths.values())), strict=True))
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from error
    columns = [job.source.text] if isinstance(job.source, CorpusSource) else [job.source.source, job.source.target]
    texts = json.dumps(read_judged(job.judged.values()))
    recipe = {
        "judged": digest_text(texts),
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
    new = {name: path for name, path in paths.items() if keep is None or keep["files"].get(name) != digests[name]}
    size = sum(path.stat().st_size for path in new.values())
    with (
        sharded(job.output, settings=job.cluster, size=size) as steps,
        writing(job.output, kind=KIND, keep=keep is not None) as draft,
    ):
        _Run(job, draft, keep, steps, stored(steps.work, texts.encode())).add(new, digests)
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
        changed = sorted(key for key, value in recipe.items() if before["recipe"][key] != value)
        return "texts of judged rows changed" if changed == ["judged"] else "settings changed"
    for name, digest in before["files"].items():
        if name not in digests:
            return f"raw file gone: {name}"
        if digests[name] != digest and not _was_extended(paths[name], before["file_counts"][name][1], digest):
            return f"raw file changed: {name}"
    return ""


def _was_extended(path: Path, size: int, digest: str) -> bool:
    """Whether lines were appended to a file of `size` bytes with this digest: its documents are unchanged."""
    if suffix_of(path.name) in (".txt", ".parquet"):
        return False
    start, last = hashlib.sha256(), b""
    with path.open("rb") as file:
        while size and (block := file.read(min(size, 1 << 20))):
            start.update(block)
            size, last = size - len(block), block
    return last.endswith(b"\n") and start.hexdigest() == digest


class _Run:
    """One run over new raw files. Documents of earlier runs are only compared with, never dropped."""

    def __init__(self, job: IngestJob, draft: Draft, before: dict[str, Any] | None, steps: Steps, judged: str) -> None:
        self.job, self.draft, self.steps, self.judged = job, draft, steps, judged
        #: Raw file -> its documents, bytes, replaced bytes and lines.
        self.files: dict[str, list[int]] = dict(before["file_counts"]) if before else {}
        self.shards: dict[str, list[str]] = before["shards"] if before else {split: [] for split in SPLITS}
        self.key_shards: list[str] = before["keys"] if before else []
        self.counts = Counts(**before["counts"]) if before else Counts()
        self.near = job.settings.near_duplicates

    def add(self, files: Mapping[str, Path], digests: Mapping[str, str]) -> None:
        """Read, compare and write; leaves shards, keys, dropped.parquet, metrics.json and facts in the draft."""
        keys, parts = self._read(files, digests)
        shards, work, new = (
            [self.draft.path / name for name in self.key_shards],
            self.steps.work,
            sum(part.rows for part in parts),
        )
        pairs, flags = np.empty(0, PAIR), np.empty(0, bool)
        if new:
            with joined_keys(work, shards, parts, near=self.near is not None) as (exact, sketches):
                threshold = self.near.threshold if self.near else None
                pairs, flags = find_duplicates(exact, sketches, old=len(exact) - new, threshold=threshold)
        equal = int(pairs["exact"].sum())
        self.counts.dropped["exact_duplicate"] += equal
        self.counts.dropped["near_duplicate"] += len(pairs) - equal
        self._write(parts, flags[len(flags) - new :])
        with dropped_writer(self.draft.path) as dropped:
            for batch in written(work, keys, "left-out"):
                dropped.write_batch(batch)
            if len(pairs):
                old = (batch for path in shards for batch in read_batches(path, list(Origin._fields)))
                dropped.write_batch(_rows_of(pairs, chain(old, written(work, keys, "origins"))))
        if self.counts.kept < 2 or self.counts.kept == self.counts.heldout:
            raise DataError(
                f"{self.job.source.path}: {self.counts}; a corpus needs at least 2 different documents, one of them "
                "to train on; a document is a line in jsonl, a row in csv, tsv or parquet, and in txt a block of text "
                "followed by two empty lines" + ("; " + _JUDGED if self.counts.dropped[JUDGED] else "")
            )
        self.draft.facts |= {"shards": self.shards, "keys": self.key_shards, "counts": vars(self.counts)}
        self.draft.facts |= {"file_counts": self.files}
        write_atomic(self.draft.path / "metrics.json", json.dumps(self.counts.metrics(), indent=1) + "\n")

    def _read(self, files: Mapping[str, Path], digests: Mapping[str, str]) -> tuple[list[str], list[Part]]:
        """Read the documents of the files; returns the keys of the steps and the parts."""
        job, items = self.job, {}
        sizes = {name: path.stat().st_size for name, path in files.items()}
        for names in divided(sizes):
            raw = tuple(
                RawFile(
                    name,
                    self.steps.work.publish(files[name], f"{digests[name][:32]}-{files[name].name}"),
                    self.files[name][0] if name in self.files else 0,
                )
                for name in names
            )
            content = [[file.name, digests[file.name], file.read] for file in raw]
            source = job.source.model_dump(mode="json", exclude={"path"})
            settings = job.settings.model_dump(mode="json")
            key = digest_of("read", VERSION, job.code, content, source, settings, self.judged)
            items[key] = ReadPart(raw, job.source, job.settings, sum(sizes[name] for name in names), self.judged)
        with Progress(f"ingest {job.name}", total=sum(sizes.values()) / 1e6, unit="MB") as bar:
            results = self.steps.map(read_part, items, advance=lambda item: bar.advance(item.size / 1e6))
        parts = []
        number = sum(pq.read_metadata(self.draft.path / name).num_rows for name in self.key_shards)
        for key, facts in zip(items, results, strict=True):
            parts.append(Part(key, number, facts["rows"]))
            number += facts["rows"]
            for name, read in facts["files"].items():
                self._count(name, read)
            for reason, count in facts["dropped"].items():
                self.counts.dropped[reason] += count
        return list(items), parts

    def _count(self, name: str, read: list[int]) -> None:
        counts, before = self.counts, self.files.get(name)
        self.files[name] = read
        names = ("documents", "raw_bytes", "bad_bytes", "bad_lines")
        for key, number, earlier in zip(names, read, before or [0] * 4, strict=True):
            setattr(counts, key, getattr(counts, key) + number - earlier)
        counts.files += before is None

    def _write(self, parts: Sequence[Part], flags: Flags) -> None:
        """Write the kept documents."""
        items, first = {}, 0
        for part in (part for part in parts if part.rows):
            item = WritePart(
                part,
                stored(self.steps.work, flags[first : first + part.rows].tobytes()),
                self.job.settings.heldout,
                also=-1,
                near=self.near is not None,
                pairs=isinstance(self.job.source, ParallelSource),
                bytes=SHARD_BYTES,
            )
            items[self._key(item)] = item
            first += part.rows
        results = dict(zip(items, self.steps.map(write_part, items), strict=True))
        heldout = self.shards["heldout"] or any(facts["heldout"] for facts in results.values())
        least = [(*facts["least"], key) for key, facts in results.items() if facts["least"]]
        if self.job.settings.heldout > 0 and least and not heldout:
            # The share selects no document of a small corpus: the kept one with the smallest hash is held out.
            _, number, key = min(least)
            item = replace(items[key], also=number)
            changed = {self._key(item) if each == key else each: facts for each, facts in results.items()}
            changed[self._key(item)] = self.steps.map(write_part, {self._key(item): item})[0]
            results = changed
        for facts in results.values():
            for name in ("kept", "heldout", "characters"):
                setattr(self.counts, name, getattr(self.counts, name) + facts[name])
            for split in SPLITS:
                self.shards[split] = self.shards[split] + facts["shards"][split]
            self.key_shards = self.key_shards + facts["shards"]["keys"]
            for name in facts["files"]:
                self.steps.work.fetch(name, self.draft.path / name)
            self.draft.files |= facts["files"]

    def _key(self, item: WritePart) -> str:
        return digest_of("write", VERSION, self.job.code, asdict(item))


def stored(work: Work, content: bytes) -> str:
    """Put a small file into the work folder, under its digest."""
    with work.scratch() as folder:
        (folder / "content").write_bytes(content)
        name = digest_file(folder / "content")[:32]
        work.put(folder / "content", name)
    return name


def _rows_of(pairs: Pairs, documents: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of dropped.parquet about duplicates: each and the document it repeats, in the order of the documents."""
    wanted = np.concatenate([pairs["later"], pairs["earlier"]])
    numbers, first, batches = np.unique(wanted), 0, []
    for batch in documents:
        inside = numbers[slice(*np.searchsorted(numbers, [first, first + batch.num_rows]))] - first
        batches.append(batch.take(pa.array(inside)))
        first += batch.num_rows
    origins = pa.Table.from_batches(batches).combine_chunks()
    rows = origins.take(pa.array(np.searchsorted(numbers, wanted)))
    count = len(pairs)
    return pa.record_batch(
        [
            *(column.combine_chunks() for column in rows.slice(0, count).columns),
            pa.array(np.where(pairs["exact"], "exact_duplicate", "near_duplicate"), pa.string()),
            *(column.combine_chunks() for column in rows.slice(count).columns),
            pa.array(pairs["similarity"], pa.float32()),
        ],
        schema=DROPPED_SCHEMA,
    )
