"""The runs of a retraining in MLflow: times, states, reasons; a server that is away; killed processes; gauges."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from components.core.environment import who
from components.core.errors import RegistryUnavailableError
from components.core.measurements import FILE, Curve
from components.pipeline import telemetry as live
from components.registry.tracking import Registry, connect
from components.settings.params import TelemetrySettings
from components.settings.registry import RegistrySettings


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """One database for all tests, each with an experiment of its own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield connect(RegistrySettings(tracking=f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"))


class Project:
    """The retrainings of a test."""

    def __init__(self, root: Path, database: Registry, experiment: str, telemetry: TelemetrySettings) -> None:
        self.root, self.telemetry = root, telemetry
        self.settings = database.settings.model_copy(update={"experiment": experiment})
        self.registry = connect(self.settings)

    def begin(self, run: str = "run-1") -> live.Live:
        tags = {"params": "params.yaml", "user": "someone", "prefect_url": "http://prefect/run-1"}
        return live.Live(
            self.root,
            run,
            f"2026-11-24 {run}",
            process=live.process_of(os.getpid()),
            tags=tags,
            registry=self.settings.model_dump(),
            telemetry=self.telemetry.model_dump(),
            texts={"params.yaml": "run: {}\n"},
        )

    def stage(self, run: live.Live, name: str = "pretrain@ulmfit") -> live.Stage:
        file = self.root / f"{name}.jsonl"
        history = file.stat().st_size if file.exists() else 0
        return run.stage(name, reasons=["data changed"], file=str(file), history=history)

    def runs(self, run: str = "run-1") -> dict[str, Any]:
        """The MLflow runs of a retraining, by the tag `stage`."""
        runs = self.registry.search_runs(run=run)
        assert len({each.data.tags["headstart.stage"] for each in runs}) == len(runs)
        return {each.data.tags["headstart.stage"]: each for each in runs}

    def curve(self, run: Any, key: str) -> list[tuple[int, float]]:
        history = self.registry.client.get_metric_history(run.info.run_id, key)
        return [(point.step, point.value) for point in history]

    def gauges(self) -> dict[str, float]:
        text = (self.root / ".headstart/metrics/params.prom").read_text()
        return {
            sample.name + "".join(f" {value}" for key, value in sorted(sample.labels.items()) if key != "params"): (
                sample.value
            )
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def end(run: live.Live, stage: live.Stage, outcome: str = "Completed", **facts: Any) -> None:
    run.ended(stage.name, **facts, time=live.now_ms(), outcome=outcome)


def finish(run: live.Live, status: str = "FINISHED", reason: str = "", summary: tuple[str, ...] = ()) -> None:
    run.finish(status, reason=reason, summary=summary, wait_s=60.0)
    run.update()
    assert run.closed, run.problem


@pytest.fixture
def project(tmp_path: Path, database: Registry, request: pytest.FixtureRequest) -> Project:
    return Project(tmp_path, database, request.node.name, TelemetrySettings())


def test_updates_become_rare_while_nothing_happens_and_cost_little():
    rare = [live.UPDATE_S]
    for _ in range(5):
        rare.append(live.pauses(0.0, rare[-1], news=False)[1])
    assert rare == [2, 4, 8, 16, 30, 30]
    assert live.pauses(0.0, 30, news=True) == (2, 2)
    # 0.3 seconds of work may be a twentieth.
    assert live.pauses(0.3, 2, news=True) == pytest.approx((6, 6))
    assert live.pauses(0.3, 2, news=False) == pytest.approx((6, 6))
    assert live.pauses(9.0, 2, news=False) == (30, 30)


def test_a_retraining_and_its_stages_are_runs(project, monkeypatch):
    run = project.begin()
    stage = project.stage(run)
    monkeypatch.setenv(FILE, str(stage.points.path))
    curve = Curve(total=2)
    curve.add(1, loss=3.0)
    curve.add(2, loss=2.0)
    end(run, stage, metrics={"perplexity": 7.5}, output="abc.dir")
    end(run, project.stage(run, "tokenize@general"), "Skipped")
    end(run, project.stage(run, "adapt@ulmfit"), "Failed", error="adapt@ulmfit: no space left")
    report = project.root / "report.html"
    report.write_text("<p>report")
    run.attach(str(report), folder="report")
    finish(run, "FAILED", "adapt@ulmfit: no space left", ("aws-type: promote",))

    runs = project.runs()
    assert set(runs) == {"retrain", "pretrain@ulmfit", "adapt@ulmfit"}  # one that was skipped has no run
    parent, pretrain, adapt = runs["retrain"], runs["pretrain@ulmfit"], runs["adapt@ulmfit"]
    assert (parent.info.status, pretrain.info.status, adapt.info.status) == ("FAILED", "FINISHED", "FAILED")
    assert parent.info.run_name == "2026-11-24 run-1"
    assert pretrain.info.run_name.startswith("pretrain ulmfit 20")
    assert (pretrain.info.start_time, pretrain.info.end_time) == (stage.start, stage.time)
    assert parent.info.start_time <= stage.start and stage.time <= parent.info.end_time
    assert pretrain.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert project.curve(pretrain, "loss") == [(1, 3.0), (2, 2.0)]
    assert pretrain.data.metrics["perplexity"] == 7.5
    assert pretrain.data.tags["headstart.dvc_output"] == "abc.dir"
    assert pretrain.data.tags["headstart.why"] == "data changed"
    assert parent.data.tags["headstart.changed"] == "data changed", "each reason of the stages once"
    assert adapt.data.tags["headstart.error"] == "adapt@ulmfit: no space left"
    assert "no space left" in adapt.data.tags["mlflow.note.content"]
    assert "aws-type: promote" in parent.data.tags["mlflow.note.content"]
    assert "(http://prefect/run-1)" in parent.data.tags["mlflow.note.content"]
    files = [project.registry.client.list_artifacts(parent.info.run_id, folder) for folder in ("", "report")]
    assert {file.path for part in files for file in part} == {"params.yaml", "report", "report/report.html"}


def test_runs_of_a_killed_process_are_closed_by_the_next_retraining(project):
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    client, experiment = project.registry.client, project.registry.experiment_id()
    process = f"{who()} {done.stdout.strip()} 1.0"
    tags = {"headstart.run": "run-0", "headstart.stage": "retrain", "headstart.process": process}
    parent = client.create_run(experiment, tags=tags).info.run_id
    child = {"headstart.run": "run-0", "headstart.stage": "adapt", "mlflow.parentRunId": parent}
    client.create_run(experiment, tags=child)
    elsewhere = client.create_run(experiment, tags={**tags, "headstart.run": "a", "headstart.process": "me@x 1 1.0"})
    finish(project.begin())
    for run in project.runs("run-0").values():
        assert run.info.status == "KILLED" and live.KILLED in run.data.tags["mlflow.note.content"]
    assert client.get_run(elsewhere.info.run_id).info.status == "RUNNING"
    assert project.runs()["retrain"].info.status == "FINISHED"


@pytest.mark.slow
def test_the_process_ends_the_run_when_the_retraining_is_killed(project):
    """And with the summary if it is told to finish."""
    for run, finished in (("run-1", False), ("run-2", True)):
        messages: list[dict[str, Any]] = [
            {
                "begin": {
                    "root": str(project.root),
                    "identifier": run,
                    "name": run,
                    "process": live.process_of(os.getpid()),
                    "tags": {"params": "params.yaml"},
                    "registry": project.settings.model_dump(mode="json"),
                    "telemetry": project.telemetry.model_dump(mode="json"),
                    "texts": {},
                }
            },
            {"stage": {"name": "adapt", "reasons": ["new"], "file": str(project.root / "adapt.jsonl"), "history": 0}},
        ]
        end = {"name": "adapt", "time": live.now_ms(), "error": "", "metrics": {"loss": 1.5}, "output": "md5.dir"}
        if finished:
            messages.append({"ended": end | {"outcome": "Completed"}})
            messages.append({"finish": {"status": "FINISHED", "reason": "", "summary": ["done"], "wait_s": 300}})
        here, there = socket.socketpair()
        with here, there:
            process = subprocess.Popen([sys.executable, "-m", "components.pipeline.telemetry"], stdout=there.fileno())
            there.close()
            text = "".join(json.dumps(message) + "\n" for message in messages)
            here.sendall((text if finished else text + '{"ended": {"na').encode())
            here.shutdown(socket.SHUT_WR)
            answer = here.makefile().readline()
        assert (process.wait(), json.loads(answer)) == (0, {"problem": ""})
        runs = project.runs(run)
        status = "FINISHED" if finished else "KILLED"
        assert runs["retrain"].info.status == status
        assert ("done" if finished else live.KILLED) in runs["retrain"].data.tags["mlflow.note.content"]
        if finished:
            assert (runs["adapt"].info.status, runs["adapt"].data.metrics) == ("FINISHED", {"loss": 1.5})


def test_everything_is_sent_when_mlflow_answers_again(project, monkeypatch):
    log_points, away = Registry.log_points, True

    def unreachable(self, *arguments):
        if away:
            raise RegistryUnavailableError("no answer")
        log_points(self, *arguments)

    monkeypatch.setattr(Registry, "log_points", unreachable)
    run = project.begin()
    stage = project.stage(run)
    monkeypatch.setenv(FILE, str(stage.points.path))
    Curve(total=3).add(1, loss=3.0)
    end(run, stage)
    # Stages of less than some seconds have no run until they end.
    run.update()
    assert (run.problem, run.closed) == ("no answer", False)
    away = False
    finish(run)
    assert project.curve(project.runs()["pretrain@ulmfit"], "loss") == [(1, 3.0)]


def test_the_next_retraining_continues_the_curve_of_an_interrupted_stage(project, monkeypatch):
    for run, steps, outcome in (("run-1", {1: 3.0, 2: 9.0}, "Interrupted"), ("run-2", {2: 2.0, 3: 1.0}, "Completed")):
        began = project.begin(run)
        stage = project.stage(began)
        monkeypatch.setenv(FILE, str(stage.points.path))
        curve = Curve(total=3)
        for step, loss in steps.items():
            curve.add(step, loss=loss)
        end(began, stage, outcome)
        finish(began)
    assert project.curve(project.runs("run-2")["pretrain@ulmfit"], "loss") == [(1, 3.0), (2, 2.0), (3, 1.0)]


def test_gauges_for_prometheus(project, monkeypatch):
    project.telemetry = TelemetrySettings(mlflow=False)
    run = project.begin()
    stage = project.stage(run)
    monkeypatch.setenv(FILE, str(stage.points.path))
    Curve("20 labels seed 1", total=2).step(1, tokens=5, seconds=1, loss=2.5)
    run.update()
    gauges, name = project.gauges(), "headstart_training 20 labels seed 1 loss pretrain@ulmfit"
    assert gauges["headstart_retrain_running"] == 1
    assert gauges["headstart_stage_running pretrain@ulmfit"] == 1
    assert gauges[name] == 2.5

    end(run, stage)
    finish(run)
    gauges = project.gauges()
    assert gauges["headstart_retrain_running"] == 0
    assert gauges["headstart_stage_running pretrain@ulmfit"] == 0
    assert gauges["headstart_retrain_last_status FINISHED"] == 1
    success = gauges["headstart_retrain_last_success_timestamp_seconds"]
    assert success == gauges["headstart_retrain_last_end_timestamp_seconds"]

    # A failure leaves the time of the last success.
    finish(project.begin("run-2"), "FAILED", "no space left")
    gauges = project.gauges()
    assert gauges["headstart_retrain_last_status FAILED"] == 1
    assert gauges["headstart_retrain_last_success_timestamp_seconds"] == success
    assert gauges["headstart_retrain_last_end_timestamp_seconds"] >= success
