"""The stage `unlabelled`: texts without labels.

It collects the texts of a task for words models or for a group of `distil`; both begin with the rows of train without a
label. Their order depends on the texts only, so that the first N rows of a larger collection are the collection of N
rows. The manifest names what was read (`sources`).

Its items `domain-NAME` are the domain corpus of a run that names none: the texts of the train splits, those of rows
without a label among them, and the texts of `data.unlabelled`. The stage `ingest` leaves out those on which scores are
computed.
"""

import heapq
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from components.core.artifacts import write_json, writing
from components.core.errors import ConfigError
from components.data.formats import corpus
from components.data.formats.lines import Reading
from components.data.ingestion.matching import BATCH, HeldOut
from components.data.ingestion.readers import raw_files, read_documents
from components.data.tasks.data import Fields, row_texts
from components.data.tasks.examples import read_facts, read_rows_without_label, read_split
from components.data.tasks.judged import HELD_OUT
from components.data.tasks.results import write_fields
from components.data.unlabelled_texts import FILE, KIND, digest_of
from components.settings.data import CorpusSource
from components.settings.section import Positive, Section
from components.settings.tasks import OF_ONE_TEXT, TextSource, has


class UnlabelledJob(Section):
    """Inputs of the stage.

    Attributes:
        key: of the settings in params.yaml, for messages.
        corpus: of the domain; None: it is not read.
        which: texts beside the rows of train without a label; None: no others.
        rows: maximum number of texts.
    """

    task: str
    key: str
    examples: Path
    corpus: Path | None
    which: TextSource | None
    rows: Positive
    output: Path


class DomainTextsJob(Section):
    """Inputs of the stage, for the texts of one task or one entry of `data.unlabelled`.

    Attributes:
        name: of the task or the entry, for ids and messages.
        examples: output directory of the stage `examples`, for the texts of the train split of a task; None: those of
            `unlabelled`.
        unlabelled: text without labels.
        output: directory to write; texts.jsonl has the columns text and id.
    """

    name: str
    examples: Path | None = None
    unlabelled: CorpusSource | None = None
    output: Path


def unlabelled(job: UnlabelledJob | DomainTextsJob) -> Path:
    """Collect the texts: distinct, without copies and near copies of texts of dev and test, at most `rows`; or a part
    of the domain corpus.

    Raises:
        ArtifactError: examples or corpus are incomplete or damaged.
        ConfigError: documents are requested for a kind whose rows are not one text.
        DataError: a file of `data.unlabelled` is missing or damaged.
    """
    if isinstance(job, DomainTextsJob):
        return domain_texts(job)
    rows: list[Iterable[Fields]] = [read_rows_without_label(job.examples)]
    sources = ["rows without a label"] if rows[0] else []
    if (source := job.which) is not None:
        kind = read_facts(job.examples).kind
        if source != "task" and kind not in OF_ONE_TEXT:
            raise ConfigError(
                f"{job.key}.source: {source!r} includes documents, and a row of {job.task} "
                f"({kind}) is not one text; use task"
            )
        if source != "domain":
            sources.append("task")
            rows.append(read_split(job.examples, "train").fields)
        if source != "task" and job.corpus is not None:
            sources.append("domain")
            rows.append((text,) for text in corpus.read_documents(job.corpus))
    kept, left_out = _sample((fields for part in rows for fields in part), job.examples, most=job.rows)
    return _write(job.output, kept, sources, left_out)


def write_texts(output: Path, rows: Iterable[Fields], *, examples: Path, most: int) -> Path:
    """Write an output of the stage from inputs in memory.

    Raises:
        ArtifactError: the examples are incomplete or damaged.
    """
    kept, left_out = _sample(rows, examples, most=most)
    return _write(output, kept, ["memory"], left_out)


def _write(output: Path, texts: list[Fields], sources: list[str], left_out: int) -> Path:
    with writing(output, kind=KIND) as draft:
        write_fields(draft.path / FILE, texts)
        write_json(draft.path / "metrics.json", {"texts": len(texts), "held_out": left_out})
        draft.facts |= {"sources": sources, "rows": len(texts)}
    if texts or left_out:
        print(f"{output.name}: {len(texts):,} texts without labels; left out: {left_out:,} copies of dev or test")
    return output


def _sample(rows: Iterable[Fields], examples: Path, *, most: int) -> tuple[list[Fields], int]:
    """At most `most` distinct rows with the smallest digests, and the number of held-out copies among them."""
    held = HeldOut("\n".join(fields) for split in HELD_OUT for fields in read_split(examples, split).fields)
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


DOMAIN_KIND: Final = "domain-texts"
DOMAIN_FILE: Final = "texts.jsonl"


def domain_texts(job: DomainTextsJob) -> Path:
    """Write the texts; returns the directory.

    Raises:
        ArtifactError: the examples are incomplete or damaged.
        DataError: a file of `unlabelled` is missing or damaged.
    """
    count = 0
    with writing(job.output, kind=DOMAIN_KIND) as draft:
        with (draft.path / DOMAIN_FILE).open("w", encoding="utf-8") as file:
            for text, row_id in _texts(job):
                count += 1
                file.write(json.dumps({"text": text, "id": row_id}, ensure_ascii=False) + "\n")
        write_json(draft.path / "metrics.json", {"texts": count})
    print(f"domain-texts {job.name}: {count:,} texts")
    return job.output


def _texts(job: DomainTextsJob) -> Iterator[tuple[str, str]]:
    """The texts and their ids."""
    if job.unlabelled is not None:
        for path in raw_files(Path(job.unlabelled.path))[0]:
            for number, (text,), row_id in read_documents(path, job.unlabelled, Reading()):
                yield text, row_id or f"{path.name}:{number}"
    if job.examples is not None:
        kind, train = read_facts(job.examples).kind, read_split(job.examples, "train")
        named = [*zip(train.fields, train.ids, strict=True)]
        without = read_rows_without_label(job.examples)
        named += [(fields, f"without label {number}") for number, fields in enumerate(without)]
        yield from ((text, f"{job.name}:{row_id}") for fields, row_id in named for text in documents_of(kind, fields))


def documents_of(kind: str, fields: Fields) -> list[str]:
    """The texts of one row that are documents of the domain: of a question its context, of a choice the prompt."""
    part = slice(1, None) if has(kind, "context") else slice(1) if has(kind, "choices") else slice(None)
    return row_texts(kind, fields)[part]
