"""Benchmarks: the two variants that they compare are the ones that run."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from components.core import threads


@pytest.mark.parametrize(
    "name",
    ["few_labels", "scale", "static_vectors"],
)
def test_benchmarks_that_share_code_start_from_the_command_line(name, tmp_path):
    benchmarks = Path(__file__).parents[1] / "benchmarks"
    # `components` is installed, `benchmarks` is not; the working directory is not on the path of a script.
    (tmp_path / "components").symlink_to(benchmarks.parent / "components")
    command = [sys.executable, str(benchmarks / f"{name}.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr


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
def test_a_step_of_the_gpu_benchmark_runs(step, gpu):
    line = gpu.run_step(step, cpu=True)
    assert "error" not in line, line["traceback"]
    assert line["step"] == step and line["card"] == "cpu" and line["result"]["ok"], line
    assert json.loads(json.dumps(line)) == line


def test_the_gpu_benchmark_imports_no_library_of_the_pipeline():
    """On a machine with a card only torch, transformers and a few more have to be installed."""
    block = "import sys; sys.modules |= dict.fromkeys(('ray', 'prefect', 'dvc', 'mlflow', 'boto3'))"
    code = f"{block}\nimport benchmarks.gpu_steps.correctness, benchmarks.gpu_steps.speed"
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, env=os.environ | {"PYTHONPATH": root}
    )
    assert done.returncode == 0, done.stderr
