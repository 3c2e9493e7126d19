"""The flow tells its monitor what runs: a failed retraining and its repetition, as MLflow shows them."""

import asyncio
import shutil

import pytest
from prefect import get_client

from components.core.errors import HeadstartError
from components.registry.tracking import connect
from components.settings.registry import RegistrySettings
from flows import retrain
from flows import stages as pipeline
from flows.terminal import StageError

from .conftest import ROOT, ran


def refuse(*_: object, **__: object) -> None:
    raise HeadstartError("too little disk space")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_failed_retraining_and_its_repetition_are_runs(project, prefect_server, monkeypatch, capsys):
    # Processes of the server have the variables with which an earlier test has started it.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/mlflow.db")
    monkeypatch.setattr(pipeline, "run_headstart", lambda *arguments, **keywords: None)
    shutil.copyfile(ROOT / "params.yaml", project / "params.yaml")  # with its section telemetry
    (project / "trouble").write_text("pretrain refuse")
    with pytest.raises(StageError):
        retrain.retrain(str(project / "params.yaml"))
    (project / "trouble").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "check_space", refuse)
        with pytest.raises(HeadstartError):
            retrain.retrain(str(project / "params.yaml"))
    retrain.retrain(str(project / "params.yaml"))
    shown = capsys.readouterr().out
    ran(project)

    registry = connect(RegistrySettings(tracking=f"sqlite:///{project}/mlflow.db"))
    runs = registry.client.search_runs([registry.experiment_id()], order_by=["attributes.start_time ASC"])
    parents = [run for run in runs if run.data.tags["headstart.stage"] == "retrain"]
    assert [run.info.status for run in parents] == ["FAILED", "FAILED", "FINISHED"]
    # One that was refused before its first stage has no stages.
    assert parents.pop(1).data.tags["headstart.reason"] == "too little disk space"

    def stages(parent):
        children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
        return {run.data.tags["headstart.stage"]: run.info.status for run in children}

    done = ["ingest@general", "ingest@domain"]
    assert stages(parents[0]) == dict.fromkeys(done, "FINISHED") | {"pretrain": "FAILED"}
    assert stages(parents[1]) == dict.fromkeys(["pretrain", "evaluate", "register"], "FINISHED")
    for tag in ("headstart.reason", "mlflow.note.content"):
        assert "pretrain: artifacts/corpus/general: line 3: no text" in parents[0].data.tags[tag]
    pretrain = next(run for run in runs if run.info.status == "FINISHED" and run.info.run_name.startswith("pretrain "))
    assert pretrain.data.metrics["loss"] == 3.5

    # One id: of the flow run, of the MLflow runs, in the summary.
    async def names() -> dict[str, str]:
        async with get_client() as client:
            return {str(run.id): run.name for run in await client.read_flow_runs()}

    prefect = asyncio.run(names())
    for parent in parents:
        assert prefect[parent.data.tags["headstart.run"]] == parent.info.run_name
    assert f"run | {parents[1].info.run_name} ({parents[1].data.tags['headstart.run']})" in shown
    assert not list((project / ".headstart/telemetry").glob("*.jsonl"))
    assert (project / ".headstart/metrics/params.prom").is_file()
