"""The stage `domain-texts`: the domain corpus of a run that names none.

It holds the texts of the train splits without their labels, and the texts of `data.unlabelled`. Copies and near
copies of texts of dev and test of the run's tasks, and texts that contain one, are left out, so that no model learns
from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from components.artifacts import writing
from components.formats.lines import Reading
from components.ingestion.matching import BATCH, HELD_OUT, HeldOut
from components.ingestion.readers import raw_files, read_texts
from components.settings.data import CorpusSource
from components.settings.leakage import LeakageSettings
from components.settings.section import Section
from components.tasks.data import Fields
from components.tasks.examples import read_facts, read_split

KIND: Final = "domain-texts"
FILE: Final = "texts.jsonl"


class DomainTextsJob(Section):
    """Inputs of the stage, for the texts of one task or one entry of `data.unlabelled`.

    Attributes:
        name: of the task or the entry, for ids and messages.
        examples: task -> output directory of the stage `examples`.
        unlabelled: text without labels; None: the texts of the train split of the task `name`.
        threshold: similarity from which a text is a near copy (`leakage.threshold`).
        output: directory to write; texts.jsonl has the columns text and id.
    """

    name: str
    examples: dict[str, Path]
    unlabelled: CorpusSource | None
    threshold: float = LeakageSettings().threshold
    output: Path


def domain_texts(job: DomainTextsJob) -> Path:
    """Write the texts; returns the directory.

    Raises:
        ArtifactError: the examples are incomplete or damaged.
        DataError: a file of `unlabelled` is missing or damaged.
    """
    kinds = {task: read_facts(directory).kind for task, directory in job.examples.items()}
    texts = (
        text
        for task, directory in job.examples.items()
        for split in HELD_OUT
        for fields in read_split(directory, split).fields
        for text in texts_of(kinds[task], fields)
    )
    held = HeldOut(texts, threshold=job.threshold)
    rows: Iterator[tuple[str, str]]
    if job.unlabelled is None:
        train = read_split(job.examples[job.name], "train")
        rows = (
            (text, f"{job.name}:{row_id}")
            for fields, row_id in zip(train.fields, train.ids, strict=True)
            for text in texts_of(kinds[job.name], fields)
        )
    else:
        rows = _documents(job.unlabelled)
    with writing(job.output, kind=KIND) as draft:
        counts = _write(draft.path / FILE, rows, held)
        (draft.path / "metrics.json").write_text(json.dumps(counts) + "\n", encoding="utf-8")
    print(f"domain-texts {job.name}: {counts['texts']:,} texts; left out: {counts['held_out']:,} copies of dev or test")
    return job.output


def texts_of(kind: str, fields: Fields) -> list[str]:
    """The texts of one row that are documents of the domain."""
    if kind == "tagging":
        return [" ".join(fields)]
    if kind == "questions":
        return [fields[1]]
    return list(fields[:1] if kind == "choice" else fields)


def _documents(source: CorpusSource) -> Iterator[tuple[str, str]]:
    files, _ = raw_files(Path(source.path))
    for path in files:
        for number, text, row_id in read_texts(path, source, Reading()):
            yield text, row_id or f"{path.name}:{number}"


def _write(path: Path, rows: Iterator[tuple[str, str]], held: HeldOut) -> dict[str, int]:
    counts = {"texts": 0, "held_out": 0}
    with path.open("w", encoding="utf-8") as file:
        while batch := list(islice(rows, BATCH)):
            copies = held.copies([text for text, _ in batch])
            counts["held_out"] += len(copies)
            counts["texts"] += len(batch) - len(copies)
            for index, (text, row_id) in enumerate(batch):
                if index not in copies:
                    file.write(json.dumps({"text": text, "id": row_id}, ensure_ascii=False) + "\n")
    return counts
