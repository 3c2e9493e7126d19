"""Benchmarks: the two variants that they compare are the ones that run."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from components.core import threads
from tests.conftest import python

#: Runs the scripts of the arguments with --help, each as if it were the only one.
SCRIPTS = """
import contextlib, io, runpy, sys
from pathlib import Path
path = sys.path[1:]
for script in sys.argv[1:]:
    for module in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[module]
    sys.path[:], sys.argv = [str(Path(script).parent), *path], [script, "--help"]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as ended:
            assert not ended.code, script
"""


def test_benchmarks_that_share_code_start_from_the_command_line(tmp_path):
    benchmarks = Path(__file__).parents[1] / "benchmarks"
    # `components` is installed, `benchmarks` is not; the working directory is not on the path of a script.
    (tmp_path / "components").symlink_to(benchmarks.parent / "components")
    names = ("encoder_cost", "few_labels", "label_texts", "prompts", "run_cost", "scale", "static_vectors")
    python("-c", SCRIPTS, *(benchmarks / f"{name}.py" for name in names), PYTHONPATH=str(tmp_path))


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
    python("-c", f"{block}\nimport benchmarks.gpu_steps.correctness, benchmarks.gpu_steps.speed")


#: A process whose child is not waited for, and killed after it has used the processor for a second.
SPENDING = """
import os, signal, time
from pathlib import Path
if os.fork() == 0:
    os.setsid()
    if (child := os.fork()) == 0:
        while time.process_time() < 1:
            pass
        Path("spent").touch()
        signal.pause()
    while not Path("spent").exists():
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(child, signal.SIGKILL)
    os._exit(0)
while not Path("spent").exists():
    time.sleep(0.05)
time.sleep(0.6)
raise SystemExit(3)
"""


@pytest.mark.parametrize("sampled", [False, True])
def test_the_cost_of_a_command_includes_killed_processes_nobody_waits_for(sampled, tmp_path, monkeypatch):
    from benchmarks import run_cost

    monkeypatch.chdir(tmp_path)
    cost = run_cost.measure([sys.executable, "-c", SPENDING], sampled=sampled)
    assert cost.code == 3
    assert 0.98 <= cost.processor <= 1.6, cost
    assert cost.wall >= 1
    assert list(cost.left) == []


def test_the_cost_of_stages_is_what_was_spent_while_they_ran():
    from benchmarks import run_cost

    samples = [(0, 0.0), (1, 0.5), (2, 2.5), (3, 3.0), (4, 4.0), (5, 4.25)]
    spent = run_cost.by_stage(samples, {"ingest": (1, 3), "tokenize": (2, 4)})
    assert spent == {run_cost.BEFORE: 0.5, "ingest": 2.25, "tokenize": 1.25, run_cost.BESIDE: 0.25}


def test_a_recorded_cost_keeps_the_columns_of_other_variants(tmp_path, monkeypatch):
    from benchmarks import results, run_cost

    monkeypatch.chdir(tmp_path)
    for module in (results, run_cost):
        monkeypatch.setattr(module, "commit_of", lambda _: "0123abc")
    for variant, seconds, stage in (("before", 9.0, "ngrams"), ("after", 4.0, "report"), ("after", 3.0, "report")):
        cost = run_cost.Cost(wall=5.0, samples=[(0, 0.0), (1, seconds)], load=0.5, code=0, left=[])
        run_cost.write("cost", variant, cost, {stage: (0, 1)}, command=["make", "run"], note="")
    result = results.read_result(tmp_path / "docs" / "results" / "cost.json")
    cells = {row.name: row.estimates for row in result.values}
    assert cells["total"] == {
        "before-processor": [9.0], "before-wall": [5.0], "after-processor": [3.0], "after-wall": [5.0],
    }  # fmt: skip
    assert cells["ngrams"] == {"before-processor": [9.0], "before-wall": [1.0]}
    assert cells["report"] == {"after-processor": [3.0], "after-wall": [1.0]}
    assert result.notes.count("before: ") == result.notes.count("after: ") == 1
    assert "load 0.5 before the start" in result.notes
