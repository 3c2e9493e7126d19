"""Runs of fine-tuning that are interrupted in the middle of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq
import pytest

from components.core.artifacts import read_manifest
from components.learners.finetuning import runs
from components.learners.finetuning.stage import finetune

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


def answers_of(output: Path, split: str) -> list[list[float]]:
    """The predictions of all runs of a job for a split."""
    return pq.read_table(output / "runs.parquet", filters=[("split", "=", split)]).column("answer").to_pylist()
