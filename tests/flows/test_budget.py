"""A budget refuses or stops a run, the next one resumes it; `headstart plan` says what a run would cost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from components.pipeline.costs import Duration, History, machine
from components.settings.loading import load_params
from flows import retrain, stages
from flows.execution import failure
from flows.terminal import BudgetError

from .conftest import change, ran


@pytest.fixture
def run(project: Path, prefect_server: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run()` runs the pipeline of the project, without the check of its data."""
    monkeypatch.setattr(stages, "run_headstart", lambda *arguments, **keywords: None)
    monkeypatch.setattr(retrain, "RETRY_DELAYS_S", [0])
    return lambda: retrain.retrain(str(project / "params.yaml"))


def limit(project: Path, hours: str) -> None:
    change(project / "params.yaml", "  hours: null", f"  hours: {hours}")


@pytest.mark.slow
def test_a_run_is_stopped_at_its_budget_and_the_next_one_resumes(project, run, monkeypatch, capsys):
    (project / "trouble").write_text("pretrain hang")
    limit(project, "0.5")
    # The stages before it take their time on a busy machine; the third one has three seconds left.
    begun = iter([0.0, 0.0, 1797.0])

    def begin(self, stage):
        self.began = time.monotonic() - next(begun)
        return begin_stage(self, stage)

    begin_stage = stages.Spending.begin
    monkeypatch.setattr(stages.Spending, "begin", begin)
    with pytest.raises(BudgetError, match="pretrain: stopped, because the run has used up its budget"):
        run()
    shown = capsys.readouterr()
    assert shown.err.count("error: pretrain: stopped") == 1, "a stopped stage is not retried"
    assert "budget: no history of ingest@general" in shown.out
    # On a busy machine, DVC itself may take more than three seconds.
    assert ran(project) in (before := ["ingest general", "ingest domain"], [*before, "pretrain model"])
    durations = History(project).read()
    assert [single.stage for single in durations] == ["ingest@general", "ingest@domain"]
    assert durations[0].unit == "bytes" and durations[0].seconds > 0

    # The next run continues with the stage; the duration of one that was interrupted is not recorded.
    (project / "trouble").unlink()
    monkeypatch.undo()
    monkeypatch.setattr(stages, "run_headstart", lambda *arguments, **keywords: None)
    assert run()["Completed"] == ["pretrain", "evaluate", "register"]
    assert [single.stage for single in History(project).read()][2:] == ["evaluate", "register"]


@pytest.mark.slow
def test_a_run_that_is_expected_to_exceed_the_budget_does_not_start(project, run):
    here = machine(load_params(project / "params.yaml").cluster)
    History(project).end("pretrain", Duration("pretrain", here, "run", 1, 7200))
    limit(project, "1.5")
    with pytest.raises(
        BudgetError, match=r"^the run is expected to take 2\.00 hours, and budget\.hours is 1\.5; nothing"
    ):
        run()
    assert ran(project) == []
    change(project / "params.yaml", "  hours: 1.5", "  hours: 3")
    assert "pretrain" in run()["Completed"]


def plan(project: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "components.cli", "plan", *arguments]
    return subprocess.run(command, cwd=project, check=True, capture_output=True, text=True).stdout


def test_the_plan_of_a_run(project):
    here = machine(load_params(project / "params.yaml").cluster)
    for seconds in (3600, 14_400):
        History(project).end("pretrain", Duration("pretrain", here, "run", 1, seconds))
    limit(project, "1")
    shown = plan(project)
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert "pretrain has not run yet 2 h 0 min 60 min to 4 h 0 min 2 runs" in rows
    assert "ingest@general has not run yet 13 B ? no history" in rows
    assert "data: new version; `headstart retrain` records it first" in shown
    assert "total: at least 2 h 0 min (60 min to 4 h 0 min)" in shown
    assert "no history on this machine: ingest@general, ingest@domain, evaluate, register; their first run" in shown
    assert "over budget: 2.00 hours, and budget.hours is 1; `headstart retrain` would refuse to start" in shown

    actual = json.loads(plan(project, "--json"))
    assert actual["machine"] == here
    assert actual["total"]["seconds"] == pytest.approx(7200) and actual["over_budget"].startswith("2.00 hours")
    stage = next(single for single in actual["stages"] if single["stage"] == "pretrain")
    assert (stage["why"], stage["work"], stage["basis"]) == ("has not run yet", {"amount": 1, "unit": "run"}, "2 runs")
    assert ran(project) == [] and not (project / "data.dvc").exists()


def test_a_flow_that_started_the_run_ends_with_the_same_code():
    error = failure("retrain", BudgetError.exit_code, ["a line", "error: pretrain: stopped, because", "flow failed"])
    assert isinstance(error, BudgetError) and error.final
    assert str(error) == "retrain: pretrain: stopped, because"
    assert BudgetError.exit_code == 3
