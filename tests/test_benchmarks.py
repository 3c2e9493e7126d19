"""Benchmarks: the two variants that they compare are the ones that run."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from components.training import threads


@pytest.mark.parametrize(
    "name",
    ["few_labels", "scale", "training_profile"],
)
def test_benchmarks_that_share_code_start_from_the_command_line(name: str, tmp_path: Path) -> None:
    benchmarks = Path(__file__).parents[1] / "benchmarks"
    # `components` is installed, `benchmarks` is not; the working directory is not on the path of a script.
    (tmp_path / "components").symlink_to(benchmarks.parent / "components")
    command = [sys.executable, str(benchmarks / f"{name}.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr


def test_the_plan_for_a_terabyte_multiplies_what_was_measured() -> None:
    plan = importlib.import_module("benchmarks.scale_plan").plan
    seconds = {"ingest_seconds": 36.0, "tokenize_seconds": 72.0, "epoch_seconds": 3.6}
    memory = {"ingest_memory": 300.0, "tokenize_memory": 300.0, "epoch_memory": 200.0}
    larger = {"ingest_memory": 400.0, "tokenize_memory": 300.0, "epoch_memory": 250.0}
    stored = {"corpus_bytes": 320.0, "token_bytes": 640.0}
    rows = plan([(0.5, {}), (5.0, {**seconds, **memory, **stored}), (10.0, {**seconds, **larger, **stored})])
    # From 10 GB to 1,000 GB, ingestion takes 990 times the 20 MB per GB that lie between 5 and 10 GB.
    assert rows == {
        "documents (Parquet)": {"hours": 10, "hours_gpu": 10 / 64, "memory": 20.2, "size": 320, "size_gpu": 5},
        "token shards (Arrow)": {"hours": 20, "hours_gpu": 20 / 64, "memory": 0.3, "size": 640, "size_gpu": 10},
        "batches of one epoch": {"hours": 1, "hours_gpu": 1 / 64, "memory": 10.15},
    }


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `benchmarks.gpu`. The environment and the algorithms of the test process stay unchanged."""
    monkeypatch.setattr(threads, "prepare", lambda: None)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    yield importlib.import_module("benchmarks.gpu")
    torch.use_deterministic_algorithms(False)


@pytest.mark.slow
# Not throughput and profile: in bf16 they take minutes on a processor.
@pytest.mark.parametrize("step", ["smoke", "parity", "resume", "attention", "lstm", "waits"])
def test_a_step_of_the_gpu_benchmark_runs(step: str, gpu: Any) -> None:
    line = gpu.run_step(step, cpu=True)
    assert "error" not in line, line["traceback"]
    assert line["step"] == step and line["card"] == "cpu" and line["result"]["ok"], line
    assert json.loads(json.dumps(line)) == line


def test_the_gpu_benchmark_needs_a_gpu(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="finds no CUDA device; run this on a machine with one .* or with --cpu"):
        gpu.run_step("smoke", cpu=False)


def test_the_gpu_benchmark_imports_no_library_of_the_pipeline() -> None:
    """On a machine with a card only torch, transformers and a few more have to be installed."""
    block = "import sys; sys.modules |= dict.fromkeys(('ray', 'prefect', 'dvc', 'mlflow', 'boto3'))"
    code = f"{block}\nimport benchmarks.gpu_steps.correctness, benchmarks.gpu_steps.speed"
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, env=os.environ | {"PYTHONPATH": root}
    )
    assert done.returncode == 0, done.stderr
