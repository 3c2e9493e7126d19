"""The stage `ingest`: raw files of one corpus to clean, distinct documents, or pairs of texts.

The raw files are divided into parts. Every part is read and cleaned (`components.data.ingestion.parts`), duplicates are
found among the keys of all parts (`components.data.ingestion.duplicates`), and every part writes shards of its kept
documents. Parts are steps that may run at the same time (`components.cluster.shards`); this module joins their results.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pydantic import Field

from components.cluster.shards import Facts, Steps, Work, digest_of, sharded
from components.core.artifacts import Draft, digest_file, digest_text, flatten, read_manifest, write_atomic, writing
from components.core.digests import kept_digests
from components.core.errors import ArtifactError, DataError
from components.core.progress import Progress
from components.data.formats.corpus import KIND, SPLITS, read_batches
from components.data.ingestion.documents import DROPPED_SCHEMA, JUDGED, REASONS, Origin, dropped_writer
from components.data.ingestion.duplicates import find_duplicates, mapped_keys
from components.data.ingestion.parts import KEYS, LEFT_OUT, ReadPart, WritePart, divided, read_part, write_part, written
from components.data.ingestion.readers import raw_files
from components.data.tasks.judged import read_judged
from components.settings.cluster import ClusterSettings
from components.settings.data import CorpusSource, IngestSettings, ParallelSource
from components.settings.formats import suffix_of
from components.settings.section import Section

#: Incremented when the same raw text and settings give other documents or files; older corpora are then rewritten.
VERSION = 4
#: Approximate size of a Parquet shard.
SHARD_BYTES = 32_000_000


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


class RawFile(NamedTuple):
    """A raw file: its name in the corpus, path, digest, and bytes."""

    name: str
    path: Path
    digest: str
    size: int


_JUDGED = (
    "rows of dev, of test and of the label budgets are no text for a language model, because scores are computed on "
    "them; name further text in data.unlabelled, or budgets that leave rows of train (data.tasks.NAME.budgets)"
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
    digests = dict(zip(paths, kept_digests(files), strict=True))
    columns = [job.source.text] if isinstance(job.source, CorpusSource) else [job.source.source, job.source.target]
    judged = json.dumps(read_judged(job.judged.values()))
    recipe = {
        "judged": digest_text(judged),
        "version": VERSION,
        "settings": job.settings.model_dump(mode="json"),
        "columns": [*columns, job.source.id],
    }
    before: Facts | None = None
    with suppress(ArtifactError):  # there is no complete corpus, or it is damaged
        before = read_manifest(job.output, kind=KIND).facts
    reason = _reason_to_write(before, recipe, paths, digests, rebuild=job.rebuild)
    keep = before if not reason else None
    if keep and keep["files"] == digests:
        return job.output
    new = [
        RawFile(name, path, digests[name], path.stat().st_size)
        for name, path in paths.items()
        if keep is None or keep["files"].get(name) != digests[name]
    ]
    with (
        sharded(job.output, settings=job.cluster, size=sum(file.size for file in new)) as steps,
        writing(job.output, kind=KIND, keep=keep is not None) as draft,
    ):
        # Raw file -> its documents, bytes, replaced bytes and lines; names of shards; numbers: over all runs.
        counts = {"kept": 0, "heldout": 0, "characters": 0, "dropped": dict.fromkeys(REASONS, 0)}
        draft.facts |= {"file_counts": {}, "shards": {split: [] for split in SPLITS}, "keys": [], "counts": counts}
        draft.facts |= {name: keep[name] for name in draft.facts} if keep else {}
        _add(job, draft, steps, new, judged)
        draft.facts |= {
            "corpus": job.name,
            "recipe": recipe,
            "files": digests,
            "ignored": [path.relative_to(root).as_posix() for path in ignored],
            "rewritten": reason or None,
        }
        print(f"ingest {job.name}: {_in_words(draft.facts['counts'])}")
    return job.output


def _reason_to_write(
    before: Facts | None, recipe: Facts, paths: Mapping[str, Path], digests: Mapping[str, str], *, rebuild: str
) -> str:
    """Why the whole corpus is written; empty: what there is stays."""
    if before is None:
        return "first run"
    if rebuild:
        return f"requested: {rebuild}"
    if before["recipe"].get("version") != recipe["version"]:
        return "written by another version"
    if changed := [key for key, value in recipe.items() if before["recipe"].get(key) != value]:
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


def _in_words(counts: Mapping[str, Any]) -> str:
    dropped = [f"{number:,} {reason.replace('_', ' ')}" for reason, number in counts["dropped"].items() if number]
    return (
        "{documents:,} documents read, {kept:,} kept, {heldout:,} of them held out".format(**counts)
        + (f"; dropped: {', '.join(dropped)}" if dropped else "")
        + (f"; {counts['bad_bytes']:,} bytes that are not UTF-8 were replaced" if counts["bad_bytes"] else "")
    )


def _add(job: IngestJob, draft: Draft, steps: Steps, files: Sequence[RawFile], judged: str) -> None:
    """Read, compare and write new raw files. Documents of earlier runs are only compared with, never dropped."""
    counts, old = draft.facts["counts"], [draft.path / name for name in draft.facts["keys"]]
    parts = _read(job, draft.facts, steps, files, judged)

    def keys(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Of all documents, in order."""
        for path in old:
            yield from read_batches(path, list(columns))
        for key in parts:
            yield from (batch.select(columns) for batch in written(steps.work, key, KEYS))

    pairs, splits = _compared(job, draft, steps.work, keys, new=sum(parts.values()))
    counts["dropped"]["exact_duplicate"] += int(pairs.exact.sum())
    counts["dropped"]["near_duplicate"] += int((~pairs.exact).sum())
    _write(job, draft, steps, parts, splits)
    with dropped_writer(draft.path) as writer:
        for key in parts:
            for batch in written(steps.work, key, LEFT_OUT):
                writer.write_batch(batch)
        if len(pairs):
            writer.write_table(_rows_of(pairs, keys(Origin._fields)))
    totals = np.sum([[*read, 1] for read in draft.facts["file_counts"].values()], axis=0).tolist()
    counts |= dict(zip(("documents", "raw_bytes", "bad_bytes", "bad_lines", "files"), totals, strict=True))
    if counts["kept"] < 2 or counts["kept"] == counts["heldout"]:
        raise DataError(
            f"{job.source.path}: {_in_words(counts)}; a corpus needs at least 2 different documents, one of them "
            "to train on; a document is a line in jsonl, a row in csv, tsv or parquet, and in txt a block of text "
            "followed by two empty lines" + ("; " + _JUDGED if counts["dropped"][JUDGED] else "")
        )
    numbers = {name.replace(".", "_"): number for name, number in flatten(counts)}
    # The earlier file may be a hard link into a complete corpus: it is replaced.
    write_atomic(draft.path / "metrics.json", json.dumps(numbers, indent=1) + "\n")


def _read(job: IngestJob, facts: Facts, steps: Steps, files: Sequence[RawFile], judged: str) -> dict[str, int]:
    """Read the documents of the files; the key of each part -> its documents."""
    items, texts, new = {}, stored(steps.work, judged.encode()), {file.name: file for file in files}
    source, settings = job.source.model_dump(mode="json", exclude={"path"}), job.settings.model_dump(mode="json")
    for names in divided({file.name: file.size for file in files}):
        part = [new[name] for name in names]
        read = {file.name: facts["file_counts"].get(file.name, [0])[0] for file in part}
        places = {file.name: steps.work.publish(file.path, f"{file.digest[:32]}-{file.path.name}") for file in part}
        content = [[file.name, file.digest, read[file.name]] for file in part]
        key = digest_of("read", VERSION, job.code, content, source, settings, texts)
        items[key] = ReadPart(places, read, job.source, job.settings, texts, sum(file.size for file in part))
    with Progress(f"ingest {job.name}", total=sum(file.size for file in files) / 1e6, unit="MB") as bar:
        results = steps.map(read_part, items, advance=lambda item: bar.advance(item.size / 1e6))
    for result in results:
        facts["file_counts"] |= result["files"]
        for reason, number in result["dropped"].items():
            facts["counts"]["dropped"][reason] += number
    return {key: result["rows"] for key, result in zip(items, results, strict=True)}


def _compared(
    job: IngestJob, draft: Draft, work: Work, keys: Callable[[Sequence[str]], Iterator[pa.RecordBatch]], *, new: int
) -> tuple[pd.DataFrame, npt.NDArray[np.int8]]:
    """The duplicates among the documents (`find_duplicates`), and the split of each of the `new` ones, the last: its
    index in `SPLITS`, -1 for duplicates. The hash of a document's text alone chooses what is held out."""
    near, share = job.settings.near_duplicates, job.settings.heldout
    threshold = near.threshold if near else None
    with work.scratch() as folder:
        exact, sketches = mapped_keys(keys(["exact", "sketch"] if near else ["exact"]), folder)
        pairs, flags = find_duplicates(exact, sketches, old=len(exact) - new, threshold=threshold)
        hashes, kept = exact[len(exact) - new :, 0], ~flags[len(exact) - new :]
        held = hashes < np.uint64(min(int(share * 2**64), 2**64 - 1))
        if share > 0 and not draft.facts["shards"]["heldout"] and kept.any() and not held[kept].any():
            # The share selects no document of a small corpus: the kept one with the smallest hash is held out.
            held[np.flatnonzero(kept)[hashes[kept].argmin()]] = True
    return pairs, np.where(kept, held, -1).astype(np.int8)


def _write(job: IngestJob, draft: Draft, steps: Steps, parts: Mapping[str, int], splits: npt.NDArray[np.int8]) -> None:
    """Write the kept documents."""
    items, first = {}, 0
    for part, rows in parts.items():
        if rows:
            flags = stored(steps.work, splits[first : first + rows].tobytes())
            key = digest_of("write", VERSION, job.code, part, flags, SHARD_BYTES)
            items[key] = WritePart(part, flags, job.source, job.settings, SHARD_BYTES)
            first += rows
    shards = draft.facts["shards"] | {KEYS: draft.facts["keys"]}
    for result in steps.map(write_part, items):
        for name, number in result["counts"].items():
            draft.facts["counts"][name] += number
        for prefix, names in result["shards"].items():
            shards[prefix] += names
        for name in result["files"]:
            steps.work.fetch(name, draft.path / name)
        draft.files |= result["files"]


def stored(work: Work, content: bytes) -> str:
    """Put a small file into the work folder, under its digest."""
    with work.scratch() as folder:
        (folder / "content").write_bytes(content)
        name = digest_file(folder / "content")[:32]
        work.put(folder / "content", name)
    return name


def _rows_of(pairs: pd.DataFrame, documents: Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows of dropped.parquet about duplicates: each and the document it repeats, in the order of the documents."""
    numbers, first, batches = np.unique(pairs[["later", "earlier"]]), 0, []
    for batch in documents:
        inside = numbers[slice(*np.searchsorted(numbers, [first, first + len(batch)]))] - first
        batches.append(batch.take(pa.array(inside)))
        first += len(batch)
    origins = pa.Table.from_batches(batches)
    later, earlier = (origins.take(pa.array(np.searchsorted(numbers, pairs[name]))) for name in ("later", "earlier"))
    reasons = pa.array(np.where(pairs.exact, "exact_duplicate", "near_duplicate"), pa.string())
    similarity = pa.array(pairs.similarity, pa.float32())
    return pa.table([*later.columns, reasons, *earlier.columns, similarity], schema=DROPPED_SCHEMA)
