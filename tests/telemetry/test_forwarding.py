"""The runs of a retraining in MLflow: times, states, reasons; a server that is away; killed processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from components.measurements import FILE, Curve
from components.settings.registry import RegistrySettings
from components.settings.telemetry import TelemetrySettings
from components.telemetry import __main__ as monitor
from components.telemetry.retraining import KILLED
from components.telemetry.spool import EVENTS, FOLDER, Spool
from components.tracking import Registry, connect


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """One database for all tests, each with an experiment of its own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield connect(RegistrySettings(tracking=f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"))


class Run:
    """A retraining whose events a test writes."""

    def __init__(self, root: Path, registry: Registry, name: str, run: str = "run-1") -> None:
        self.root, self.id, self.registry = root, run, registry
        self.settings = registry.settings.model_copy(update={"experiment": name})
        self.spool = Spool(root, run)
        self.telemetry = TelemetrySettings()

    def begin(self, **settings: Any) -> None:
        registry = (self.settings.model_copy(update=settings)).model_dump()
        tags = {"params": "params.yaml", "user": "someone", "prefect_url": "http://prefect/run-1"}
        telemetry = self.telemetry.model_dump()
        self.spool.begin(f"2026-11-24 {self.id}", tags=tags, registry=registry, telemetry=telemetry, expected={})

    def stage(self, name: str = "pretrain@ulmfit") -> Path:
        return self.spool.begin_stage(name, pipeline="params.yaml", identity="i" * 64, reasons=["data changed"])

    def end_stage(self, name: str = "pretrain@ulmfit", outcome: str = "Completed", **facts: Any) -> None:
        self.spool.end_stage(name, outcome=outcome, pipeline="params.yaml", identity="i" * 64, **facts)

    def end(self, status: str = "FINISHED", **facts: Any) -> None:
        self.spool.write("end", status=status, **facts)

    def watch(self) -> int:
        return monitor.watch(self.root, self.id)

    def found(self) -> dict[str, Any]:
        """The MLflow runs of the retraining, by the tag `stage`."""
        experiment = self.registry.client.get_experiment_by_name(self.settings.experiment)
        runs = self.registry.client.search_runs([experiment.experiment_id], f"tags.`headstart.run` = '{self.id}'")
        assert len({run.data.tags["headstart.stage"] for run in runs}) == len(runs)
        return {run.data.tags["headstart.stage"]: run for run in runs}

    def curve(self, run: Any, key: str) -> list[tuple[int, float]]:
        history = self.registry.client.get_metric_history(run.info.run_id, key)
        return [(point.step, point.value) for point in history]


@pytest.fixture
def run(tmp_path: Path, registry: Registry, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(monitor, "POLL_S", 0.01)
    monkeypatch.setattr(monitor, "FINAL_RETRY_S", 0.0)
    return Run(tmp_path, registry, request.node.name)


def test_a_retraining_and_its_stages_are_runs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.begin()
    monkeypatch.setenv(FILE, str(run.stage()))
    curve = Curve(total=2)
    curve.add(1, loss=3.0)
    curve.add(2, loss=2.0)
    run.end_stage(metrics={"perplexity": 7.5}, output="abc.dir")
    run.stage("tokenize@general")
    run.end_stage("tokenize@general", "Skipped")
    run.stage("adapt@ulmfit")
    run.end_stage("adapt@ulmfit", "Failed", error="adapt@ulmfit: no space left")
    report = run.root / "report.html"
    report.write_text("<p>report")
    run.spool.write("file", path=str(report), folder="report")
    run.end("FAILED", reason="adapt@ulmfit: no space left", summary=["aws-type: promote"])
    events = [json.loads(line) for line in (run.spool.folder / EVENTS).read_text().splitlines()]
    times = {(event["event"], event.get("stage")): event["time"] for event in events}

    assert run.watch() == 0
    found = run.found()
    assert set(found) == {"retrain", "pretrain@ulmfit", "adapt@ulmfit"}  # one that was skipped has no run
    parent, pretrain, adapt = found["retrain"], found["pretrain@ulmfit"], found["adapt@ulmfit"]
    assert (parent.info.status, pretrain.info.status, adapt.info.status) == ("FAILED", "FINISHED", "FAILED")
    assert parent.info.run_name == "2026-11-24 run-1"
    assert pretrain.info.run_name.startswith("pretrain ulmfit 20")
    assert pretrain.info.start_time == times["stage", "pretrain@ulmfit"]
    assert pretrain.info.end_time == times["done", "pretrain@ulmfit"]
    assert (parent.info.start_time, parent.info.end_time) == (times["run", None], times["end", None])
    assert pretrain.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert run.curve(pretrain, "loss") == [(1, 3.0), (2, 2.0)]
    assert pretrain.data.metrics["perplexity"] == 7.5
    assert pretrain.data.tags["headstart.dvc_output"] == "abc.dir"
    assert pretrain.data.tags["headstart.why"] == "data changed"
    assert adapt.data.tags["headstart.error"] == "adapt@ulmfit: no space left"
    assert "no space left" in adapt.data.tags["mlflow.note.content"]
    assert "aws-type: promote" in parent.data.tags["mlflow.note.content"]
    assert "(http://prefect/run-1)" in parent.data.tags["mlflow.note.content"]
    assert [file.path for file in run.registry.client.list_artifacts(parent.info.run_id, "report")] == [
        "report/report.html"
    ]
    assert not run.spool.folder.exists()


def test_a_run_of_a_killed_process_is_closed_with_its_reason(run: Run) -> None:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    run.begin()
    run.stage()
    events = run.spool.folder / EVENTS
    events.write_text(events.read_text().replace(f'"pid": {os.getpid()}', f'"pid": {int(done.stdout)}'))

    assert run.watch() == 0
    for found in run.found().values():
        assert found.info.status == "KILLED"
        assert KILLED in found.data.tags["mlflow.note.content"]
        assert found.info.end_time >= found.info.start_time


def test_what_mlflow_has_not_received_is_sent_by_the_next_retraining(run: Run) -> None:
    unreachable = "http://127.0.0.1:9"
    run.begin(tracking=unreachable)
    run.stage()
    run.end_stage()
    run.end()
    assert run.watch() == monitor.UNSENT

    later = Run(run.root, run.registry, run.settings.experiment, "run-2")
    later.begin()
    later.stage("adapt@ulmfit")
    events = run.spool.folder / EVENTS
    events.write_text(events.read_text().replace(unreachable, run.settings.tracking))
    monitor.send_earlier(run.root, but=later.spool.folder)
    assert {name: found.info.status for name, found in run.found().items()} == {
        "retrain": "FINISHED",
        "pretrain@ulmfit": "FINISHED",
    }
    assert [folder.name for folder in (run.root / FOLDER / "runs").iterdir()] == ["run-2"]


def test_a_second_monitor_continues_where_the_first_was_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.begin()
    monkeypatch.setenv(FILE, str(run.stage()))
    curve = Curve(total=3)
    curve.add(1, loss=3.0)
    monkeypatch.setattr("components.telemetry.forwarding.SKIP_MS", 0)
    first = monitor.Sender(monitor.Retraining(run.spool.folder))
    first.retraining.read()
    first.send(now=True)
    assert run.curve(run.found()["pretrain@ulmfit"], "loss") == [(1, 3.0)]
    # Ended after it created the runs, before it recorded them.
    (run.spool.folder / "forwarded.json").unlink()
    curve.add(2, loss=2.0)
    run.end_stage()
    run.end()
    assert run.watch() == 0
    assert run.curve(run.found()["pretrain@ulmfit"], "loss") == [(1, 3.0), (2, 2.0)]


def test_the_next_retraining_continues_the_curve_of_an_interrupted_stage(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.begin()
    monkeypatch.setenv(FILE, str(run.stage()))
    interrupted = Curve(total=3)
    interrupted.add(1, loss=3.0)
    interrupted.add(2, loss=9.0)
    run.end_stage(outcome="Interrupted", error="signal 9")
    run.end("KILLED")
    assert run.watch() == 0

    later = Run(run.root, run.registry, run.settings.experiment, "run-2")
    later.begin()
    monkeypatch.setenv(FILE, str(later.stage()))
    resumed = Curve(total=3)
    resumed.add(2, loss=2.0)
    resumed.add(3, loss=1.0)
    later.end_stage()
    later.end()
    assert later.watch() == 0
    assert later.curve(later.found()["pretrain@ulmfit"], "loss") == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert list((run.root / FOLDER / "unfinished").iterdir()) == []


def test_gauges_for_prometheus(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.telemetry = TelemetrySettings(mlflow=False)

    def gauges() -> dict[str, float]:
        text = (run.root / ".headstart/metrics/params.prom").read_text()
        return {
            sample.name + "".join(f" {value}" for key, value in sorted(sample.labels.items()) if key != "params"): (
                sample.value
            )
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    run.begin()
    monkeypatch.setenv(FILE, str(run.stage()))
    Curve("20 labels seed 1", total=2).step(1, tokens=5, seconds=1, loss=2.5)
    retraining = monitor.Retraining(run.spool.folder)
    retraining.read()
    monitor.Display(retraining, monitor.Gauges(run.root, "params.yaml", run.telemetry)).show(now=True)
    found = gauges()
    assert found["headstart_retrain_running"] == 1
    assert found["headstart_stage_running pretrain@ulmfit"] == 1
    assert found["headstart_training 20 labels seed 1 loss pretrain@ulmfit"] == 2.5

    run.end_stage()
    run.end()
    assert run.watch() == 0
    found = gauges()
    assert found["headstart_retrain_running"] == 0
    assert found["headstart_retrain_last_status FINISHED"] == 1
    success = found["headstart_retrain_last_success_timestamp_seconds"]
    assert success == found["headstart_retrain_last_end_timestamp_seconds"]

    # A failure leaves the time of the last success.
    later = Run(run.root, run.registry, "gauges", "run-2")
    later.telemetry = run.telemetry
    later.begin()
    later.end("FAILED", reason="no space left")
    assert later.watch() == 0
    found = gauges()
    assert found["headstart_retrain_last_status FAILED"] == 1
    assert found["headstart_retrain_last_success_timestamp_seconds"] == success
    assert found["headstart_retrain_last_end_timestamp_seconds"] >= success
