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
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from components.artifacts import writing
from components.errors import ConfigError
from components.formats import corpus
from components.settings.section import Section
from components.settings.unlabelled import OF_ONE_TEXT, UnlabelledSettings
from components.tasks.data import Fields
from components.tasks.examples import read_facts, read_split
from components.unlabelled.texts import FILE, KIND, digest_of

#: Splits whose texts are left out.
HELD_OUT: Final = ("dev", "test")
_SCHEMA = pa.schema([("fields", pa.list_(pa.string()))])


class UnlabelledJob(Section):
    """Inputs of the stage.

    Attributes:
        task: name of the task.
        key: of the settings in params.yaml, for messages.
        examples: output directory of the stage `examples`.
        corpus: of the domain; None: there is none, because no block reads it.
        settings: number of texts and where they are from; None: no text without labels is used.
        output: directory to write.
    """

    task: str
    key: str
    examples: Path
    corpus: Path | None
    settings: UnlabelledSettings | None
    output: Path


def unlabelled(job: UnlabelledJob) -> Path:
    """Collect the texts: distinct, not in dev or test, at most `rows`.

    Raises:
        ArtifactError: examples or corpus are incomplete or damaged.
        ConfigError: documents are requested for a kind whose rows are not one text.
    """
    found: list[Fields] = []
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
        found = _distinct((fields for part in rows for fields in part), job.examples, most=job.settings.rows)
    return _write(job.output, found, sources)


def write_texts(output: Path, rows: Iterable[Fields], *, examples: Path, most: int) -> Path:
    """Write an output of the stage from inputs in memory.

    Args:
        output: directory to write.
        rows: inputs of the task's kind.
        examples: output directory of the stage `examples`.
        most: maximum number of inputs.

    Raises:
        ArtifactError: the examples are incomplete or damaged.
    """
    return _write(output, _distinct(rows, examples, most=most), ["memory"])


def _distinct(rows: Iterable[Fields], examples: Path, *, most: int) -> list[Fields]:
    held = {digest_of(fields) for split in HELD_OUT for fields in read_split(examples, split).fields}
    return _sample(rows, most=most, without=held)


def _write(output: Path, found: list[Fields], sources: list[str]) -> Path:
    with writing(output, kind=KIND) as draft:
        table = pa.table([pa.array(found, pa.list_(pa.string()))], schema=_SCHEMA)
        pq.write_table(table, draft.path / FILE, compression="zstd")
        (draft.path / "metrics.json").write_text(json.dumps({"texts": len(found)}) + "\n", encoding="utf-8")
        draft.facts |= {"sources": sources, "rows": len(found)}
    return output


def _sample(rows: Iterable[Fields], *, most: int, without: set[bytes]) -> list[Fields]:
    """At most `most` distinct rows, those with the smallest digests, in this order; one digest per row is in memory."""

    def distinct() -> Iterator[tuple[bytes, Fields]]:
        seen = set(without)
        for fields in rows:
            digest = digest_of(fields)
            if digest not in seen:
                seen.add(digest)
                yield digest, fields

    return [fields for _, fields in heapq.nsmallest(most, distinct())]
