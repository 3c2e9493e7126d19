"""What every system that was trained on a task leaves behind, in one format: predictions, records, labels.

runs.parquet  one row a run, split and text: system, family, start, budget (-1: all labels), seed, split (dev, test),
              row (in the split), label, prediction, probabilities (list of float), slice
runs.json     one entry a run: system, budget, seed, rows, curve of dev scores, best step and epoch, seconds ...
labels.json   names of the labels by number
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.finetuning.tasks.base import Split

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
        ("label", pa.int32()),
        ("prediction", pa.int32()),
        ("probabilities", pa.list_(pa.float32())),
        ("slice", pa.string()),
    ]
)


@dataclass(frozen=True)
class RunResult:
    """One run: who it was, what it recorded, and its (N, C) probabilities of each split."""

    system: str
    family: str
    start: str
    record: dict[str, Any]
    probabilities: dict[str, NDArray[np.float32]]


def write_results(
    directory: Path, results: Iterable[RunResult], *, splits: dict[str, Split], labels: list[str]
) -> list[dict[str, Any]]:
    """Write the three files; results are taken one at a time, so that only one is in memory. Returns the records."""
    records = []
    with pq.ParquetWriter(directory / "runs.parquet", SCHEMA, compression="zstd") as writer:
        for result in results:
            records.append({"system": result.system, "family": result.family, "start": result.start, **result.record})
            for name, found in result.probabilities.items():
                writer.write_table(_table(result, name, found, splits[name]))
    (directory / "runs.json").write_text(json.dumps(records, indent=1) + "\n")
    (directory / "labels.json").write_text(json.dumps(labels, ensure_ascii=False, indent=1) + "\n")
    return records


def _table(result: RunResult, name: str, found: NDArray[np.float32], split: Split) -> pa.Table:
    count, classes = found.shape
    offsets = np.arange(count + 1, dtype=np.int32) * classes
    columns = {
        "system": [result.system] * count,
        "family": [result.family] * count,
        "start": [result.start] * count,
        "budget": [result.record["budget"]] * count,
        "seed": [result.record["seed"]] * count,
        "split": [name] * count,
        "row": np.arange(count),
        "label": split.labels,
        "prediction": found.argmax(1),
        "probabilities": pa.ListArray.from_arrays(offsets, found.astype(np.float32).ravel()),
        "slice": split.slices,
    }
    return pa.table(
        [
            pa.array(columns[field.name], field.type) if field.name != "probabilities" else columns[field.name]
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )


def summary(records: list[dict[str, Any]]) -> dict[str, float]:
    """Flat numbers for `dvc metrics`: mean best dev macro F1 and seconds of every system and budget."""
    numbers: dict[str, float] = {}
    for system, budget in sorted({(record["system"], record["budget"]) for record in records}):
        runs = [record for record in records if (record["system"], record["budget"]) == (system, budget)]
        name = f"{system}.{'all' if budget < 0 else budget}"
        best = [max(point["macro_f1"] for point in run["curve"]) for run in runs]
        numbers[f"{name}.dev_macro_f1"] = round(float(np.mean(best)), 6)
        numbers[f"{name}.seconds"] = round(float(np.mean([run["seconds"] for run in runs])), 3)
    return numbers
