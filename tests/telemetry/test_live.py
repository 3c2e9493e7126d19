"""The runs of a retraining in MLflow: times, states, reasons; a server that is away; killed processes; gauges."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from components.core.environment import who
from components.core.errors import RegistryUnavailableError
from components.core.measurements import append
from components.pipeline import telemetry as live
from components.registry.tracking import Registry, connect
from components.settings.params import TelemetrySettings
from components.settings.registry import RegistrySettings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """One database for all tests, each with an experiment of its own."""
    return connect(RegistrySettings(tracking=f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"))


class Project:
    """The retrainings of a test."""

    def __init__(self, root: Path, database: Registry, experiment: str, telemetry: TelemetrySettings) -> None:
        self.root, self.telemetry = root, telemetry
        self.settings = database.settings.model_copy(update={"experiment": experiment})
        self.registry = connect(self.settings)

    def begin(self, run: str = "run-1") -> live.Live:
        (self.root / "params.yaml").write_text("run: {}\n")
        tags = {"params": "params.yaml", "user": "someone", "prefect_url": "http://prefect/run-1"}
        return live.Live(
            run,
            f"2026-11-24 {run}",
            process=live.process_of(os.getpid()),
            tags=tags,
            registry=self.settings,
            telemetry=self.telemetry,
        )

    def stage(self, run: live.Live, name: str = "pretrain@ulmfit") -> live.Stage:
        return run.stage(name, reasons=["data changed"])

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


def line(step: int, *, stage: str = "pretrain@ulmfit", **facts: Any) -> dict[str, Any]:
    """Measurements of a stage; `facts`: its piece, and the values."""
    return {"stage": stage, "piece": facts.pop("piece", ""), "step": step, "time": 1000, "values": facts}


def end(run: live.Live, stage: live.Stage, outcome: str = "Completed", **facts: Any) -> None:
    run.stage(stage.name, **facts, time=live.now_ms(), outcome=outcome)


def finish(run: live.Live, status: str = "FINISHED", reason: str = "", **facts: Any) -> None:
    run.finish(status, reason=reason, **facts, wait_s=60.0)
    run.update()
    assert run.closed, run.problem


@pytest.fixture
def project(
    tmp_path: Path, database: Registry, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Project:
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path, database, request.node.name, TelemetrySettings())


def test_a_retraining_and_its_stages_are_runs(project):
    run = project.begin()
    stage = project.stage(run)
    run.note(line(1, loss=3.0))
    run.note(line(2, loss=2.0))
    end(run, stage, metrics={"perplexity": 7.5}, output="abc.dir")
    end(run, project.stage(run, "tokenize@general"), "Skipped")
    end(run, project.stage(run, "adapt@ulmfit"), "Failed", error="adapt@ulmfit: no space left")
    report = project.root / "report.html"
    report.write_text("<p>report")
    told = {"summary": ["aws-type: promote"], "files": [str(report)]}
    finish(run, "FAILED", "adapt@ulmfit: no space left", **told)

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
        assert run.info.status == "KILLED" and run.data.tags["headstart.reason"] == live.KILLED
    assert client.get_run(elsewhere.info.run_id).info.status == "RUNNING"
    assert project.runs()["retrain"].info.status == "FINISHED"


@pytest.mark.slow
@pytest.mark.parametrize("finished", [False, True])
def test_the_process_ends_the_run_when_the_retraining_ends_or_is_killed(project, finished):
    file, params = project.root / "events.jsonl", yaml.safe_load((ROOT / "params.yaml").read_text())
    params["registry"] = project.settings.model_dump(mode="json", exclude_defaults=True)
    (project.root / "params.yaml").write_text(yaml.safe_dump(params))
    owner = subprocess.Popen(["sleep", "600"])
    begin = {"name": "run-1", "process": live.process_of(owner.pid), "tags": {"params": "params.yaml"}}
    append(file, begin=begin | {"identifier": "run-1"})
    append(file, stage={"name": "adapt", "reasons": ["new"]})
    append(file, **line(1, stage="adapt", loss=3.0))
    append(file, **line(2, stage="adapt", loss=2.0))
    if finished:
        facts = {"time": live.now_ms(), "error": "", "metrics": {"accuracy": 1.5}, "output": "md5.dir"}
        append(file, stage={"name": "adapt", "outcome": "Completed"} | facts)
        append(file, finish={"status": "FINISHED", "reason": "", "summary": ["done"], "wait_s": 300})
    else:
        owner.kill()
        with file.open("a") as half:
            half.write('{"stage": {"na')
    command = [sys.executable, "-m", "components.pipeline.telemetry", str(file)]
    done = subprocess.run(command, cwd=project.root, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    owner.kill()
    owner.wait()
    assert done.returncode == 0 and file.read_text().endswith('{"problem": ""}\n')
    runs = project.runs()
    assert runs["retrain"].info.status == ("FINISHED" if finished else "KILLED")
    assert ("done" if finished else live.KILLED) in runs["retrain"].data.tags["mlflow.note.content"]
    if finished:
        assert (runs["adapt"].info.status, runs["adapt"].data.metrics["accuracy"]) == ("FINISHED", 1.5)
        assert project.curve(runs["adapt"], "loss") == [(1, 3.0), (2, 2.0)]


def test_everything_is_sent_when_mlflow_answers_again(project, monkeypatch):
    log_points, away = Registry.log_points, True

    def unreachable(self, *arguments):
        if away:
            raise RegistryUnavailableError("no answer")
        log_points(self, *arguments)

    monkeypatch.setattr(Registry, "log_points", unreachable)
    run = project.begin()
    stage = project.stage(run)
    run.note(line(1, loss=3.0))
    end(run, stage)
    # Stages of less than some seconds have no run until they end.
    run.update()
    assert (run.problem, run.closed) == ("no answer", False)
    away = False
    finish(run)
    assert project.curve(project.runs()["pretrain@ulmfit"], "loss") == [(1, 3.0)]


def test_gauges_for_prometheus(project):
    project.telemetry = TelemetrySettings(mlflow=False)
    run = project.begin()
    stage = project.stage(run)
    run.note(line(1, piece="20 labels seed 1", loss=2.5))
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
