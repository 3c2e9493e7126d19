"""Results of the systems that were trained on a task, in one format: answers, records, labels.

runs.parquet  one row per run, split and row: system, family, start, budget (-1: all rows), seed, split (dev, test, oof,
              served), row (index in the split), answer (list of float32, see `components.data.tasks.data.Answer`),
              slice
runs.json     one record per run: system, budget, seed, rows, curve of dev metrics, best step and epoch, seconds ...
labels.json   names of the labels, by index
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.core.artifacts import write_json
from components.core.errors import ArtifactError
from components.data.scoring.base import Vectors
from components.data.tasks.budgets import ALL
from components.data.tasks.data import Answer, Fields, Split, mean_answers

KIND = "finetuned"
#: Split of the predictions of a cross-validation: the training rows of the run's label budget and seed, in the order of
#: their indices (`components.data.tasks.budgets.sample_rows`), each predicted by a model that has not learned from it.
OUT_OF_FOLD = "oof"
#: Split of the predictions of the test rows by the stored average of a system's seeds, where that is not the mean of
#: their predictions (`Scoring.averages`, or a temperature of the average): under the largest label budget and its first
#: seed.
SERVED = "served"
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
#: (system, budget, seed).
RunKey = tuple[str, int, int]


@dataclass(frozen=True)
class RunResult:
    """One run: its system, its record, and its answers to every row of each split."""

    system: str
    family: str
    start: str
    record: dict[str, Any]
    answers: Mapping[str, Sequence[Answer]]


def write_results(
    directory: Path, results: Iterable[RunResult], *, splits: Mapping[str, Split], labels: Sequence[str]
) -> list[dict[str, Any]]:
    """Write the three files and metrics.json; one result at a time is in memory. Returns the records."""
    records = []
    with pq.ParquetWriter(directory / "runs.parquet", SCHEMA, compression="zstd") as writer:
        for result in results:
            records.append({"system": result.system, "family": result.family, "start": result.start, **result.record})
            for name, answers in result.answers.items():
                slices = splits[name].slices if name in splits else [None] * len(answers)
                writer.write_table(_table(result, name, answers, slices))
    (directory / "runs.json").write_text(json.dumps(records, indent=1) + "\n")
    (directory / "labels.json").write_text(json.dumps(labels, ensure_ascii=False, indent=1) + "\n")
    write_json(directory / "metrics.json", _summary(records))
    return records


def _table(result: RunResult, name: str, answers: Sequence[Answer], slices: Sequence[str | None]) -> pa.Table:
    count = len(answers)
    of_run = {"system": result.system, "family": result.family, "start": result.start, "split": name}
    of_run |= {key: result.record[key] for key in ("budget", "seed")}
    columns: dict[str, Any] = {key: [value] * count for key, value in of_run.items()}
    columns |= {"row": np.arange(count), "answer": list(answers), "slice": slices}
    return pa.Table.from_pydict(columns, schema=SCHEMA)


def _summary(records: list[dict[str, Any]]) -> dict[str, float]:
    """Flat numbers for `dvc metrics`: mean score of selection and seconds of every system and budget."""
    numbers: dict[str, float] = {}
    for system, budget in sorted({(record["system"], record["budget"]) for record in records}):
        runs = [record for record in records if (record["system"], record["budget"]) == (system, budget)]
        name = f"{system}.{'all' if budget == ALL else budget}"
        numbers[f"{name}.{chosen_on(runs[0])}_{runs[0]['score']}"] = round(
            float(np.mean([best_score(run) for run in runs])), 6
        )
        numbers[f"{name}.seconds"] = round(float(np.mean([run["seconds"] for run in runs])), 3)
    return numbers


def chosen_on(record: Mapping[str, Any]) -> str:
    """Name of what the scores in a run's curve were computed on: `dev`, or `cv` for cross-validation."""
    return "cv" if "folds" in record else "dev"


def best_point(record: Mapping[str, Any]) -> dict[str, Any]:
    """The evaluation of a run that was chosen by cross-validation, or that has the highest primary metric on dev; the
    earliest at a tie. Where it was chosen by cross-validation, its metrics are of predictions whose choices were
    made without the row's fold (`selected`)."""
    if "selected" in record:
        return {**record["curve"][record["chosen"]], **record["selected"]}
    if "chosen" in record:
        return dict(record["curve"][record["chosen"]])
    point: dict[str, Any] = max(record["curve"], key=lambda point: point[record["score"]])
    return point


def best_score(record: Mapping[str, Any]) -> float:
    """The primary metric of the chosen evaluation of a run, on `chosen_on`."""
    return float(best_point(record)[record["score"]])


def read_answers(directory: Path, split: str) -> dict[RunKey, Vectors]:
    """The answers of all runs of an output directory to a split: (system, budget, seed) -> one answer per row.

    Raises:
        ArtifactError: runs.parquet is missing, damaged or lacks a column.
    """
    path, columns = directory / "runs.parquet", ["system", "budget", "seed", "answer"]
    table = read_columns(path, columns, stage="finetune", filters=[("split", "=", split)])
    keys = zip(*(table.column(name).to_pylist() for name in columns[:3]), strict=True)
    answers: dict[RunKey, list[NDArray[np.floating[Any]]]] = {}
    for key, answer in zip(keys, vectors(table.column("answer")), strict=True):
        answers.setdefault(key, []).append(answer)
    return dict(answers)


@dataclass(frozen=True)
class Average:
    """What the stored model of a system answers."""

    budget: int
    seeds: Sequence[int]
    answers: Vectors


def read_averages(directory: Path, *, averages: bool) -> dict[str, Average]:
    """System -> the average over the seeds of its largest budget, in an output directory of `finetune` or `baseline`.
    `averages`: whether the mean of answers is an answer (`Scoring.averages`). If not, and no average is stored
    (baselines that are not served), the first seed stands for the system.

    Raises:
        ArtifactError: as `read_answers`.
    """
    runs, served = read_answers(directory, "test"), read_answers(directory, SERVED)
    got = {}
    for system in dict.fromkeys(name for name, _, _ in runs):
        budget = max((size for name, size, _ in runs if name == system), key=lambda size: (size == ALL, size))
        seeds = sorted(seed for name, size, seed in runs if (name, size) == (system, budget))
        answers = [runs[system, budget, seed] for seed in seeds]
        if (system, budget, seeds[0]) in served:
            got[system] = Average(budget, seeds, served[system, budget, seeds[0]])
        elif averages:
            got[system] = Average(budget, seeds, mean_answers(answers))
        else:
            got[system] = Average(budget, seeds[:1], answers[0])
    return got


def read_columns(path: Path, columns: Sequence[str], *, stage: str, filters: Any = None) -> pa.Table:
    """Columns of a Parquet file.

    Raises:
        ArtifactError: the file is missing, damaged or lacks a column.
    """
    try:
        return pq.read_table(path, columns=list(columns), filters=filters)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise ArtifactError(f"{path}: cannot be read ({reason}); run the stage {stage} again") from error


def write_fields(path: Path, rows: Sequence[Fields]) -> None:
    """Write inputs without labels, which `read_fields` reads."""
    table = pa.table({"fields": pa.array(rows, pa.list_(pa.string()))})
    pq.write_table(table, path, compression="zstd")


def read_fields(path: Path, *, stage: str) -> list[Fields]:
    """The inputs in a file. `stage`: that writes it, for the message.

    Raises:
        ArtifactError: the file is missing or damaged.
    """
    return [tuple(parts) for parts in read_columns(path, ["fields"], stage=stage).column("fields").to_pylist()]


def vectors(column: pa.ChunkedArray) -> list[NDArray[Any]]:
    """A column of lists of numbers -> N vectors."""
    return list(column.to_numpy())
