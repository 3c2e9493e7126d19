"""The flows beside the chain: promote, predict, rollback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.registry import promote as registry
from flows import dvc_tasks, predict, promote, rollback
from flows.dvc_tasks import StageError

from .conftest import dvc, ran


def test_promote_runs_the_stages_of_the_registry_and_no_other(
    project: Path, prefect_server: None, capsys: pytest.CaptureFixture[str]
) -> None:
    dvc(project, "repro", "-q", "evaluate")
    ran(project)
    (project / "data/domain/aws/b.txt").write_text("more\n")
    promote.promote(str(project / "params.yaml"))
    assert ran(project) == ["register registry"]


def test_predict_runs_the_labelling_in_a_process_of_its_own(
    project: Path, prefect_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(predict, "run_headstart", lambda *arguments, **keywords: calls.append((arguments, keywords)))
    source, output = project / "texts.csv", project / "labelled.jsonl"
    params = str(project / "params.yaml")
    assert predict.predict(str(source), str(output), task="aws-type", columns=["text=body"], params=params) == str(
        output
    )
    flags = ("--column", "text=body", "--params", params, "--task", "aws-type")
    assert calls == [(("label", str(source), str(output), *flags), {"source": "predict", "root": project})]


def test_predict_says_what_is_wrong_once(
    project: Path, prefect_server: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real command: there is no champion in a new registry."""
    monkeypatch.setattr(dvc_tasks, "RETRY_DELAYS_S", (0, 0))
    (project / "texts.csv").write_text("text\nThe name.\n")
    monkeypatch.chdir(project)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/mlflow.db")
    with pytest.raises(
        StageError, match=r"^predict: headstart-aws-type@champion at sqlite:.*: no version; run the sta"
    ):
        predict.predict("texts.csv", "labelled.csv")
    assert capsys.readouterr().out.count("error: ") == 1
    assert not (project / "labelled.csv").exists()


def test_rollback_is_for_the_task_that_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "rollback", lambda settings, task: f"{settings.prefix}-{task}: version 1 restored")
    rollback.rollback(task="other", params=project / "params.yaml")
    rollback.rollback(params=project / "params.yaml")
    out = capsys.readouterr().out
    assert out == "headstart-other: version 1 restored\nheadstart-aws-type: version 1 restored\n"
