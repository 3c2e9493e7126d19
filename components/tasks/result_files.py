"""Reading what the stages `examples`, `finetune` and `baseline` write, as whoever scores it needs it.

{train,dev,test}.parquet  fields (list<string>), target (list<float64>), slice, id; labels.json beside them
runs.parquet              system, family, start, budget (-1: all rows), seed, split, row, answer (list<float32>), slice
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.artifacts import read_manifest
from components.errors import ArtifactError
from components.scoring.base import Vectors

#: (system, budget, seed).
RunKey = tuple[str, int, int]


@dataclass(frozen=True)
class Rows:
    """A split of a task: the parts of each input, what is right of it, and the slice that it is scored with."""

    fields: list[tuple[str, ...]]
    targets: Vectors
    slices: list[str | None]

    def __len__(self) -> int:
        return len(self.fields)


@dataclass(frozen=True)
class TaskFacts:
    """What the stage `examples` says of a task: its kind, the names of its labels, the digest of each split."""

    task: str
    kind: str
    labels: list[str]
    digests: dict[str, str]


def read_task(examples: Path) -> TaskFacts:
    """The facts of a task.

    Args:
        examples: output directory of the stage `examples`.

    Raises:
        ArtifactError: the directory is incomplete or damaged.
    """
    facts = read_manifest(examples, kind="examples").facts
    path = examples / "labels.json"
    try:
        labels = [str(name) for name in json.loads(path.read_text(encoding="utf-8"))]
        return TaskFacts(str(facts["task"]), str(facts["kind"]), labels, dict(facts["digests"]))
    except (OSError, ValueError, KeyError) as error:
        raise ArtifactError(f"{path}: cannot be read ({error}); run the stage examples again") from error


def read_rows(examples: Path, split: str) -> Rows:
    """A split of a task.

    Raises:
        ArtifactError: the file is missing, damaged or lacks a column.
    """
    table = read_columns(examples / f"{split}.parquet", ["fields", "target", "slice"], stage="examples")
    fields = [tuple(parts) for parts in table.column("fields").to_pylist()]
    return Rows(fields, vectors(table.column("target")), table.column("slice").to_pylist())


def read_answers(path: Path, split: str) -> dict[RunKey, Vectors]:
    """What every run in a runs.parquet says of a split: (system, budget, seed) -> one answer a row.

    Raises:
        ArtifactError: the file is missing, damaged or lacks a column.
    """
    columns = ["system", "budget", "seed", "answer"]
    table = read_columns(path, columns, stage="finetune", filters=[("split", "=", split)])
    keys = zip(*(table.column(name).to_pylist() for name in columns[:3]), strict=True)
    places: dict[RunKey, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    answers = vectors(table.column("answer"))
    return {key: [answers[place] for place in found] for key, found in places.items()}


def read_columns(path: Path, columns: Sequence[str], *, stage: str, filters: Any = None) -> pa.Table:
    """Columns of a Parquet file.

    Raises:
        ArtifactError: the file is missing, damaged or lacks a column; the message names the stage that makes it.
    """
    try:
        return pq.read_table(path, columns=list(columns), filters=filters)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: cannot be read ({error}); run the stage {stage} again") from error


def vectors(column: pa.ChunkedArray) -> Vectors:
    """A column of lists of numbers -> one vector a row."""
    values = column.combine_chunks()
    lengths = values.value_lengths().to_numpy(zero_copy_only=False)
    return np.split(values.flatten().to_numpy(zero_copy_only=False), np.cumsum(lengths)[:-1]) if len(values) else []
