"""What every system that was trained on a task leaves behind, in one format: answers, records, labels.

runs.parquet  one row a run, split and row: system, family, start, budget (-1: all), seed, split (dev, test), row (in
              the split), answer (list of float, see `tasks.base.Answer`), slice
runs.json     one entry a run: system, budget, seed, rows, curve of dev scores, best step and epoch, seconds ...
labels.json   names of the labels by number
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.tasks.data import Answer, Split

KIND = "finetuned"
SCHEMA = pa.schema(
    [
        ("system", pa.string()),
        ("family", pa.string()),
        ("start", pa.string()),
        ("budget", pa.int32()),
        ("seed", pa.int64()),
        ("split", pa.string()),
        ("row", pa.int32()),
        ("answer", pa.list_(pa.float32())),
        ("slice", pa.string()),
    ]
)


@dataclass(frozen=True)
class RunResult:
    """One run: who it was, what it recorded, and what it said of each row of each split."""

    system: str
    family: str
    start: str
    record: dict[str, Any]
    answers: Mapping[str, Sequence[Answer]]


def write_results(
    directory: Path, results: Iterable[RunResult], *, splits: dict[str, Split], labels: list[str]
) -> list[dict[str, Any]]:
    """Write the three files; results are taken one at a time, so that only one is in memory. Returns the records."""
    records = []
    with pq.ParquetWriter(directory / "runs.parquet", SCHEMA, compression="zstd") as writer:
        for result in results:
            records.append({"system": result.system, "family": result.family, "start": result.start, **result.record})
            for name, found in result.answers.items():
                writer.write_table(_table(result, name, found, splits[name]))
    (directory / "runs.json").write_text(json.dumps(records, indent=1) + "\n")
    (directory / "labels.json").write_text(json.dumps(labels, ensure_ascii=False, indent=1) + "\n")
    return records


def _table(result: RunResult, name: str, found: Sequence[Answer], split: Split) -> pa.Table:
    count = len(found)
    columns = {
        "system": [result.system] * count,
        "family": [result.family] * count,
        "start": [result.start] * count,
        "budget": [result.record["budget"]] * count,
        "seed": [result.record["seed"]] * count,
        "split": [name] * count,
        "row": np.arange(count),
        "slice": split.slices,
    }
    arrays = {name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    return pa.table([arrays.get(field.name, ragged(found, pa.float32())) for field in SCHEMA], schema=SCHEMA)


def ragged(vectors: Sequence[np.ndarray], kind: pa.DataType) -> pa.ListArray:
    """N vectors as a column of lists of numbers of that kind."""
    offsets = np.cumsum([0, *map(len, vectors)], dtype=np.int32)
    flat = np.concatenate([*vectors, np.zeros(0)]).astype(kind.to_pandas_dtype())
    return pa.ListArray.from_arrays(offsets, pa.array(flat, kind))


def best_score(record: dict[str, Any]) -> float:
    """The best deciding score on dev that a run has reached."""
    return float(max(point[record["score"]] for point in record["curve"]))


def summary(records: list[dict[str, Any]]) -> dict[str, float]:
    """Flat numbers for `dvc metrics`: mean best dev score and seconds of every system and budget."""
    numbers: dict[str, float] = {}
    for system, budget in sorted({(record["system"], record["budget"]) for record in records}):
        runs = [record for record in records if (record["system"], record["budget"]) == (system, budget)]
        name = f"{system}.{'all' if budget < 0 else budget}"
        numbers[f"{name}.dev_{runs[0]['score']}"] = round(float(np.mean([best_score(run) for run in runs])), 6)
        numbers[f"{name}.seconds"] = round(float(np.mean([run["seconds"] for run in runs])), 3)
    return numbers
