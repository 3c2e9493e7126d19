"""Stage `examples`: a task's labelled files, read and checked once, as tables that the other stages read.

The output directory holds train.parquet, dev.parquet and test.parquet (text, label, slice), labels.json (names by
number) and metrics.json (counts). Its manifest's facts: task, kind, budgets and seeds of the runs to come, and a digest
of each split's content, by which later stages know one test version from another.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.artifacts import read_manifest, writing
from components.config import Section, TaskSource
from components.errors import ArtifactError
from components.finetuning.tasks import find_task
from components.finetuning.tasks.base import Split
from components.finetuning.tasks.checks import draw, numbered

KIND = "examples"
SCHEMA = pa.schema([("text", pa.string()), ("label", pa.int32()), ("slice", pa.string())])


class ExamplesJob(Section):
    """What the stage is told: the task's name and its block in params.yaml, and where to write."""

    task: str
    source: TaskSource
    output: Path


@dataclass(frozen=True)
class TaskFacts:
    """What the other stages must know of a task beside its texts; `budgets` ascend, -1 stands for all labels."""

    task: str
    kind: str
    labels: list[str]
    budgets: list[int]
    seeds: list[int]
    digests: dict[str, str]


def examples(job: ExamplesJob) -> Path:
    """Read, check and write the labelled texts of one task.

    Raises:
        ConfigError: `kind` names no task.
        DataError: what the task's reader finds wrong (file, line, what to do).
    """
    key = f"data.tasks.{job.task}"
    task = find_task(job.source.kind, key=f"{key}.kind")
    found = task.read(job.task, job.source)
    budgets = numbered(job.source.budgets)
    splits = {"train": found.train, "dev": found.dev, "test": found.test}
    short = {}
    for budget in budgets:
        _, missing = draw(found.train.labels, budget, seed=0)
        for label, rows in missing.items():
            short[f"budget_{budget}_{found.labels[label]}"] = rows
            print(f"{key}: budget {budget}: {found.labels[label]!r} has {rows} examples in train, all of them are used")
    with writing(job.output, kind=KIND) as draft:
        for name, split in splits.items():
            table = pa.table(
                [split.texts, pa.array(split.labels, pa.int32()), pa.array(split.slices, pa.string())], schema=SCHEMA
            )
            pq.write_table(table, draft.path / f"{name}.parquet", compression="zstd")
        (draft.path / "labels.json").write_text(json.dumps(found.labels, ensure_ascii=False, indent=1) + "\n")
        metrics: dict[str, Any] = {f"{name}_rows": len(split) for name, split in splits.items()}
        metrics |= {"classes": len(found.labels), **found.counts, "short": short}
        (draft.path / "metrics.json").write_text(json.dumps(metrics, ensure_ascii=False, indent=1) + "\n")
        draft.facts |= {
            "task": job.task,
            "kind": job.source.kind,
            "budgets": budgets,
            "seeds": sorted(set(job.source.seeds)),
            "digests": {name: digest(split, found.labels) for name, split in splits.items()},
        }
    return job.output


def digest(split: Split, labels: list[str]) -> str:
    """SHA-256 over texts, label names and slices in their order: the version of a split, whatever file holds it."""
    content = hashlib.sha256()
    for text, label, name in zip(split.texts, split.labels, split.slices, strict=True):
        content.update(json.dumps([text, labels[label], name]).encode() + b"\n")
    return content.hexdigest()


def read_facts(directory: Path) -> TaskFacts:
    """What `examples` wrote about a task.

    Raises:
        ArtifactError: the directory is incomplete or damaged.
    """
    facts = read_manifest(directory, kind=KIND).facts
    labels = json.loads((directory / "labels.json").read_text(encoding="utf-8"))
    return TaskFacts(labels=labels, **facts)


def read_labels(directory: Path, split: str) -> np.ndarray:
    """(N,) label numbers of a split, without its texts."""
    return _table(directory, split, ["label"]).column("label").to_numpy().astype(np.int64)


def read_split(directory: Path, split: str, *, rows: np.ndarray | None = None) -> Split:
    """A split, or some of its rows in the order given."""
    table = _table(directory, split, None)
    if rows is not None:
        table = table.take(pa.array(rows))
    labels = table.column("label").to_numpy().astype(np.int64)
    return Split(table.column("text").to_pylist(), labels, table.column("slice").to_pylist())


def _table(directory: Path, split: str, columns: list[str] | None) -> pa.Table:
    path = directory / f"{split}.parquet"
    try:
        return pq.read_table(path, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: not readable ({error}); run the stage examples again") from error
