"""What tests of fine-tuning share: interrupted runs, and what an output holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.core.artifacts import json_of, read_manifest
from components.data.tasks.examples import read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import OUT_OF_FOLD, best_score, read_answers
from components.learners.finetuning import runs
from components.learners.finetuning.stage import FinetuneJob, finetune
from components.learners.task_models.classifier import load_classifier
from components.settings.training import Training
from components.training.precision import first_device

#: Choices by cross-validation.
BUDGET: dict[str, Any] = {"selection": "budget", "folds": 2}
#: Training at which a head learns in a few steps.
FAST = Training(rate=0.05, batch_size=4, precision="float32", schedule="slanted_triangular")
#: A job of `finetune` or of `together`.
Job = TypeVar("Job", bound=Any)


def with_checkpoints(job: Job) -> Job:
    """The job with a checkpoint after every step."""
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"checkpoint_seconds": 1e-9})})


def finish_interrupted(
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    *,
    at_step: int | None = None,
    every: int | None = None,
    stage: Callable[[Job], Path] = finetune,
) -> int:
    """Start a stage until its output exists; returns the number of starts.

    Args:
        job: of the stage.
        monkeypatch: replaces the training loop of runs.
        at_step: the first start is interrupted after this step of a run.
        every: every start is interrupted after this number of steps, over all runs and starts.
        stage: the stage.
    """
    real, starts, done = runs.train, 0, 0

    def breaks_off(*arguments: Any, **named: Any) -> Iterator[Any]:
        nonlocal done
        for report in real(*arguments, **named):
            yield report
            done += 1
            if (starts == 1 and report.step == at_step) or (every is not None and done % every == 0):
                raise KeyboardInterrupt

    monkeypatch.setattr(runs, "train", breaks_off)
    while not job.output.exists():
        starts += 1
        try:
            stage(job)
        except KeyboardInterrupt:
            assert not job.output.exists(), "nothing half-written"
    return starts


def contents(output: Path) -> tuple[list[dict[str, object]], dict[str, str]]:
    """The output of a job without durations: predictions, and the digests of the classifier's files."""
    return pq.read_table(output / "runs.parquet").to_pylist(), digests(output)


def digests(output: Path) -> dict[str, str]:
    """SHA-256 of the classifier's files."""
    return {name: entry["sha256"] for name, entry in read_manifest(output / "classifier").files.items()}


def records_of(output: Path) -> list[dict[str, Any]]:
    """The records of all runs of a job."""
    return list(json_of(output / "runs.json"))


def learned(job: FinetuneJob) -> dict[str, Any]:
    """The record of a job with one run, whose record, answers and classifier agree."""
    output = finetune(job)
    facts, test = read_facts(job.examples), read_split(job.examples, "test")
    name, split = ("dev", "dev") if facts.selection == "dev" else (OUT_OF_FOLD, "train")
    judged, scoring = read_split(job.examples, split), scoring_for(facts.kind, facts.labels)
    (record,) = records_of(output)
    assert record["score"] == scoring.main
    (answers,), (expected,) = read_answers(output, name).values(), read_answers(output, "test").values()
    actual = scoring.score(judged.fields, judged.targets, answers)[scoring.main]
    assert actual == pytest.approx(best_score(record), abs=1e-5)
    if name == OUT_OF_FOLD:
        assert 1 < record["folds"] <= facts.folds and record["rows"] == len(judged)
        assert record["best_step"] == record["curve"][record["chosen"]]["step"]
        assert not read_answers(output, "dev")
    served = load_classifier(output / "classifier").answer(test.fields)
    for answer, given in zip(served, expected, strict=True):
        # On a card the words and the encoder are added in another order.
        limit = 0.0 if first_device().type == "cpu" else 1e-6
        np.testing.assert_allclose(answer, np.asarray(given, dtype=np.float32), rtol=0, atol=limit)
    assert not list(Path(job.cluster.storage).rglob("*.safetensors")), "what is finished needs no checkpoints"
    return record


def answers_of(output: Path, split: str) -> list[list[float]]:
    """The predictions of all runs of a job for a split."""
    return pq.read_table(output / "runs.parquet", filters=[("split", "=", split)]).column("answer").to_pylist()
