"""A small finished project: words models of a task with three classes, registered and decided, and a run in progress.

The label is determined by one word of the text. In the test rows the word `iron` is labelled `animal`, so every model
is wrong there and certain.
"""

import html
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fastapi.testclient import TestClient

from components.core.measurements import RUN_ID
from components.data.tasks.examples import ExamplesJob, examples
from components.evaluation.stage import EvaluateJob, evaluate
from components.learners.baselines.stage import BaselineJob, baseline
from components.pages.app import Guard, create_app
from components.pages.project import Project
from components.pipeline import telemetry as live
from components.registry.contest import PromoteJob, promote
from components.registry.register import RegisterJob, register
from components.registry.tracking import connect
from components.reporting.stage import ReportJob, report
from components.settings.evaluate import EvaluateSettings
from components.settings.params import TelemetrySettings
from components.settings.registry import PromotionRule, RegistrySettings
from components.settings.tasks import TaskSource
from tests.example_task import rows, write_jsonl
from tests.registry.conftest import empty_database

__all__ = ["empty_database"]

TASK = "things"
#: Id of the retraining that has made the decision.
RUN = "aaaa-1111"


def write_project(root: Path) -> None:
    """The settings and the data of a project that has not run."""
    (root / ".dvc").mkdir()
    folder = root / "data" / TASK
    test = rows(8, offset=200)
    for row in test:
        if "iron" in row["text"]:
            row["label"] = "animal"
    write_jsonl(folder / "train.jsonl", rows(12))
    write_jsonl(folder / "test.jsonl", test)
    write_jsonl(root / "data" / "domain" / "new.jsonl", [{"text": row["text"]} for row in rows(6, offset=300)])
    task = {
        "path": f"data/{TASK}",
        "dev": None,
        "test": "test.jsonl",
        "slice": "part",
        "budgets": [2, 8],
        "seeds": [0, 1],
    }
    task |= {"selection": "budget", "folds": 2, "overlap": "report"}
    training = {"tokens": 1000, "rate": 0.1, "batch_size": 4}
    content = {
        "run": {"out": "artifacts", "families": ["ulmfit"], "tasks": [TASK], "starts": ["adapted"], "seed": 0},
        "data": {
            "general": {"path": "data/general", "text": "text"},
            "domain": {"path": "data/domain", "text": "text"},
            "tasks": {TASK: task},
        },
        "ingest": {},
        "tokenizer": {"kinds": ["wordpiece"]},
        "pretrain": {"ulmfit": {"tokenizer": "wordpiece", "training": training}},
        "adapt": {"ulmfit": {"training": training}},
        "finetune": {"ulmfit": {"training": {"rate": 0.1, "batch_size": 4}}},
        "evaluate": {},
        "registry": {"tracking": f"sqlite:///{root}/mlflow.db"},
    }
    (root / "params.yaml").write_text(yaml.safe_dump(content))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    root = tmp_path_factory.mktemp("pages")
    write_project(root)
    shutil.copyfile(empty_database, root / "mlflow.db")
    out = root / "artifacts"
    content = yaml.safe_load((root / "params.yaml").read_text())
    source = TaskSource.model_validate(content["data"]["tasks"][TASK] | {"path": str(root / "data" / TASK)})
    examples(ExamplesJob(task=TASK, source=source, output=out / "examples" / TASK))
    baseline(BaselineJob(examples=out / "examples" / TASK, output=out / "finetuned" / TASK / "baselines"))
    evaluate(
        EvaluateJob(
            examples=out / "examples" / TASK,
            finetuned=out / "finetuned" / TASK,
            output=out / "evaluation" / TASK,
            systems=[],
            settings=EvaluateSettings(),
        )
    )
    registry = RegistrySettings(tracking=f"sqlite:///{root}/mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv(RUN_ID, RUN)
        patch.setattr("components.registry.contest.LATENCY_ROWS", 5)
        data = {f"examples/{TASK}": Path("data") / TASK}
        job = {
            "registry": registry,
            "out": out,
            "families": [],
            "tasks": [TASK],
            "starts": [],
            "parameters": {},
            "systems": {TASK: []},
        }
        register(RegisterJob.model_validate({**job, "systems": {TASK: []}, "project": root, "data": data}))
        promote(
            PromoteJob(
                registry=registry,
                rule=PromotionRule(slice_rows=1000, latency_ms=10_000),
                examples={TASK: out / "examples" / TASK},
                out=out,
            )
        )
    decision = out / "registry" / "decision.json"
    job = {"families": [], "tasks": [TASK], "starts": [], "corpora": [], "decision": decision, "data": data}
    report(ReportJob.model_validate({**job, "out": out, "output": out / "report", "project": root}))
    return root


@pytest.fixture
def running(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The id of a retraining of which one stage is finished and one runs."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(live, "SKIP_MS", 0)
    monkeypatch.chdir(finished)
    expected = {"ingest@domain": 60.0, "adapt@ulmfit": 36000.0, "finetune@things-ulmfit-adapted": None}
    registry = RegistrySettings(tracking=f"sqlite:///{finished}/mlflow.db")
    run = live.Live(
        RUN,
        "2026-11-24 03:00:00 retrain",
        process=live.process_of(os.getpid()),
        tags={"params": "params.yaml", "expected": json.dumps(expected), "data": "0123456789abcdef.dir"},
        registry=registry,
        telemetry=TelemetrySettings(),
    )
    run.stage("ingest@domain", reasons=["new text"]).outcome = "Completed"
    run.stage("adapt@ulmfit", reasons=["ingest@domain"])
    for step, loss in enumerate((4.0, 3.0, 2.5, 2.25), start=1):
        run.note({"stage": "adapt@ulmfit", "piece": "", "step": step, "time": 1000 * step, "values": {"loss": loss}})
    run.update()
    assert not run.problem
    durations = finished / ".headstart" / "durations.jsonl"
    line = {"stage": "adapt@ulmfit", "machine": "m", "unit": "tokens", "amount": 1, "seconds": 36000.0, "time": ""}
    durations.write_text(json.dumps(line) + "\n")
    yield RUN
    run.finish("FINISHED", reason="", summary=(), wait_s=10.0)
    run.update()
    connect(registry).client.delete_run(run._run)
    shutil.rmtree(finished / ".headstart")


def client_of(root: Path, **options: object) -> TestClient:
    """A browser at http://localhost without its scripts."""
    guard = Guard.of("127.0.0.1", token=str(options.pop("token", "")))
    project = Project(root / "params.yaml", root=root, **options)
    return TestClient(create_app(project, guard), base_url="http://localhost", follow_redirects=False)


@pytest.fixture
def client(finished: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return client_of(finished)


@pytest.fixture
def new_client(tmp_path: Path) -> TestClient:
    """The pages of a project that has not run."""
    write_project(tmp_path)
    return client_of(tmp_path)


def text_of(page: str) -> str:
    """What a person reads: without tags, white space as single spaces."""
    body = re.sub(r"(?s)<(svg|script|style).*?</\1>", " ", page).replace("<wbr>", "")
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())
