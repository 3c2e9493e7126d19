"""Outputs of the stages `examples` and `finetune` with given rows and predictions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.artifacts import read_manifest, writing
from components.data.tasks.results import SCHEMA
from components.evaluation.aggregates import Run
from components.evaluation.stage import EvaluateJob, evaluate


@dataclass
class Task:
    """A task with its rows: split -> [(fields, target, slice)]."""

    kind: str
    labels: list[str]
    splits: dict[str, list[tuple[tuple[str, ...], Sequence[float], str | None]]]


def run_of(system: str, record: dict[str, Any], answers: Any, *, family: str = "baseline", start: str = "none") -> Run:
    """A run that is written with its answers, split -> one vector per row."""
    return Run(system, family, start, record["budget"], record["seed"], record, answers)


def write_examples(path: Path, task: Task) -> Path:
    """Write an output directory of the stage `examples`."""
    with writing(path, kind="examples") as draft:
        digests = {}
        for name, rows in task.splits.items():
            fields, targets, slices = zip(*rows, strict=True)
            table = pa.table(
                {
                    "fields": pa.array([list(parts) for parts in fields], pa.list_(pa.string())),
                    "target": pa.array([list(target) for target in targets], pa.list_(pa.float64())),
                    "slice": pa.array(slices, pa.string()),
                    "id": [str(row) for row in range(len(rows))],
                    "group": pa.nulls(len(rows), pa.string()),
                    "unit": list(map(fields.index, fields)),
                }
            )
            pq.write_table(table, draft.path / f"{name}.parquet")
            digests[name] = hashlib.sha256(repr(rows).encode()).hexdigest()
        (draft.path / "labels.json").write_text(json.dumps(task.labels))
        draft.facts |= {"task": "letters", "kind": task.kind, "digests": digests}
        draft.facts |= {"budgets": [2, 8], "seeds": [0, 1, 2], "language": "en", "baselines": "auto"}
        draft.facts |= {"selection": "dev", "folds": 5, "learned_languages": [], "label_texts": {}}
    return path


def write_runs(directory: Path, runs: Iterable[Run], *, examples: Path) -> None:
    """Write an output directory of the stage `finetune` or `baseline`."""
    named = [{key: getattr(of, key) for key in ("system", "family", "start", "budget", "seed")} for of in runs]
    rows = [
        names | {"split": split, "row": row, "answer": np.asarray(answer, dtype=np.float32).tolist(), "slice": None}
        for names, of in zip(named, runs, strict=True)
        for split, answers in of.answers.items()
        for row, answer in enumerate(answers)
    ]
    with writing(directory, kind="finetuned") as draft:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), draft.path / "runs.parquet")
        records = [of.record | names for names, of in zip(named, runs, strict=True)]
        (draft.path / "runs.json").write_text(json.dumps(records))
        draft.facts["examples"] = read_manifest(examples).facts["digests"]


def job_of(folder: Path, task: Task, runs: Sequence[Run], **changes: Any) -> EvaluateJob:
    """The inputs of the stage: examples, and the runs of each system and of all baselines."""
    examples, tuned = write_examples(folder / "examples", task), [of for of in runs if of.family != "baseline"]
    for name in ("baselines", *{of.system for of in tuned}):
        of_folder = [of for of in runs if ("baselines" if of.family == "baseline" else of.system) == name]
        write_runs(folder / "finetuned" / name, of_folder, examples=examples)
    return EvaluateJob(
        examples=examples,
        finetuned=folder / "finetuned",
        output=folder / "evaluation",
        systems=list(dict.fromkeys(of.system for of in tuned)),
        **changes,
    )


def record_of(budget: int, seed: int, rows: int, scores: Sequence[float], main: str = "macro_f1") -> dict[str, Any]:
    """The record of a run whose score of selection after each epoch is one of `scores`."""
    curve = [{"step": 10 * k, "epoch": float(k), main: score, "accuracy": score} for k, score in enumerate(scores)]
    record = {"budget": budget, "seed": seed, "rows": rows, "score": main, "curve": curve, "tokens": 100}
    return record | {"seconds": 2.0, "best_step": curve[-1]["step"], "best_epoch": curve[-1]["epoch"]}


def content_of(job: EvaluateJob, **changes: Any) -> dict[str, Any]:
    """evaluation.json of a job."""
    content: dict[str, Any] = json.loads((evaluate(job.model_copy(update=changes)) / "evaluation.json").read_text())
    return content
