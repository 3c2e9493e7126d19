"""The stages `unlabelled` and `distil-texts`: texts without labels for one task, and one block of `finetune` or group
of `distil`.

The order of the texts depends on the texts only, so that the first N rows of a larger collection are the collection of
N rows. There are none if the block does not use any. The manifest names what was read (`sources`): the stage depends on
the corpus of the domain in any case, and reads it only where it is asked for.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from components.artifacts import writing
from components.errors import ConfigError
from components.formats import corpus
from components.ingestion.matching import BATCH, HELD_OUT, HeldOut
from components.settings.leakage import LeakageSettings
from components.settings.section import Section
from components.settings.unlabelled import OF_ONE_TEXT, UnlabelledSettings
from components.tasks.data import Fields
from components.tasks.examples import read_facts, read_split
from components.unlabelled.texts import FILE, KIND, digest_of

_SCHEMA = pa.schema([("fields", pa.list_(pa.string()))])


class UnlabelledJob(Section):
    """Inputs of the stage.

    Attributes:
        key: of the settings in params.yaml, for messages.
        corpus: of the domain; None: there is none, because no block reads it.
        settings: number of texts and where they are from; None: no text without labels is used.
        threshold: similarity from which a text is a near copy (`leakage.threshold`).
    """

    task: str
    key: str
    examples: Path
    corpus: Path | None
    settings: UnlabelledSettings | None
    threshold: float = LeakageSettings().threshold
    output: Path


def unlabelled(job: UnlabelledJob) -> Path:
    """Collect the texts: distinct, without copies and near copies of texts of dev and test, at most `rows`.

    Raises:
        ArtifactError: examples or corpus are incomplete or damaged.
        ConfigError: documents are requested for a kind whose rows are not one text.
    """
    kept: list[Fields] = []
    left_out = 0
    sources: list[str] = []
    if job.settings is not None:
        source, kind = job.settings.source, read_facts(job.examples).kind
        if source != "task" and kind not in OF_ONE_TEXT:
            raise ConfigError(
                f"{job.key}.source: {source!r} includes documents, and a row of {job.task} "
                f"({kind}) is not one text; use task"
            )
        rows = list[Iterable[Fields]]()
        if source != "domain":
            sources.append("task")
            rows.append(read_split(job.examples, "train").fields)
        if source != "task" and job.corpus is not None:
            sources.append("domain")
            rows.append((text,) for text in corpus.read_documents(job.corpus))
        kept, left_out = _sample(
            (fields for part in rows for fields in part),
            job.examples,
            most=job.settings.rows,
            threshold=job.threshold,
        )
    return _write(job.output, kept, sources, left_out)


def write_texts(output: Path, rows: Iterable[Fields], *, examples: Path, most: int) -> Path:
    """Write an output of the stage from inputs in memory.

    Args:
        rows: inputs of the task's kind.

    Raises:
        ArtifactError: the examples are incomplete or damaged.
    """
    kept, left_out = _sample(rows, examples, most=most, threshold=LeakageSettings().threshold)
    return _write(output, kept, ["memory"], left_out)


def _write(output: Path, texts: list[Fields], sources: list[str], left_out: int) -> Path:
    with writing(output, kind=KIND) as draft:
        table = pa.table([pa.array(texts, pa.list_(pa.string()))], schema=_SCHEMA)
        pq.write_table(table, draft.path / FILE, compression="zstd")
        (draft.path / "metrics.json").write_text(
            json.dumps({"texts": len(texts), "held_out": left_out}) + "\n", "utf-8"
        )
        draft.facts |= {"sources": sources, "rows": len(texts)}
    if texts or left_out:
        print(f"{output.name}: {len(texts):,} texts without labels; left out: {left_out:,} copies of dev or test")
    return output


def _sample(rows: Iterable[Fields], examples: Path, *, most: int, threshold: float) -> tuple[list[Fields], int]:
    """At most `most` distinct rows, those with the smallest digests, in this order, and the number of copies of dev and
    test that would have been among them. One digest per row is in memory; copies are searched among candidates only."""
    held = HeldOut(
        ("\n".join(fields) for split in HELD_OUT for fields in read_split(examples, split).fields), threshold=threshold
    )
    kept: list[tuple[bytes, Fields]] = []
    copies: list[bytes] = []

    def is_among(digest: bytes) -> bool:
        return len(kept) < most or digest < kept[-1][0]

    distinct = _distinct(rows)
    while batch := list(islice(distinct, BATCH)):
        candidates = [entry for entry in batch if is_among(entry[0])]
        indices = held.copies(["\n".join(fields) for _, fields in candidates])
        copies += [candidates[index][0] for index in indices]
        kept += [entry for index, entry in enumerate(candidates) if index not in indices]
        kept = heapq.nsmallest(most, kept)
    return [fields for _, fields in kept], sum(map(is_among, copies))


def _distinct(rows: Iterable[Fields]) -> Iterator[tuple[bytes, Fields]]:
    seen: set[bytes] = set()
    for fields in rows:
        digest = digest_of(fields)
        if digest not in seen:
            seen.add(digest)
            yield digest, fields
