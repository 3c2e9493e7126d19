"""The flows promote, predict and rollback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.registry import promote as registry
from flows import dvc_tasks, predict, promote, rollback
from flows.terminal import StageError

from .conftest import dvc, ran


def test_promote_runs_only_the_stages_of_the_registry(
    project: Path, prefect_server: None, capsys: pytest.CaptureFixture[str]
) -> None:
    dvc(project, "repro", "-q", "evaluate")
    ran(project)
    (project / "data/domain/aws/b.txt").write_text("more\n")
    promote.promote(str(project / "params.yaml"))
    assert ran(project) == ["register registry"]


def test_predict_runs_headstart_label(project: Path, prefect_server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(predict, "run_headstart", lambda *arguments, **keywords: calls.append((arguments, keywords)))
    source, output = project / "texts.csv", project / "labelled.jsonl"
    params = str(project / "params.yaml")
    assert predict.predict(str(source), str(output), task="aws-type", columns=["text=body"], params=params) == str(
        output
    )
    flags = ("--column", "text=body", "--params", params, "--task", "aws-type")
    assert calls == [(("label", str(source), str(output), *flags), {"source": "predict", "root": project})]


def test_predict_prints_an_error_once(
    project: Path, prefect_server: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command is not mocked: a new registry has no champion."""
    monkeypatch.setattr(dvc_tasks, "RETRY_DELAYS_S", (0, 0))
    (project / "texts.csv").write_text("text\nThe name.\n")
    monkeypatch.chdir(project)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/mlflow.db")
    with pytest.raises(
        StageError, match=r"^predict: headstart-aws-type@champion at sqlite:.*: no version; run the sta"
    ):
        predict.predict("texts.csv", "labelled.csv")
    shown = capsys.readouterr()
    assert shown.out.count("no version; run the sta") == 0
    assert shown.err.count("no version; run the sta") == shown.err.count("error: ") == 1
    assert not (project / "labelled.csv").exists()


def test_rollback_of_a_named_task_and_of_the_first(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "rollback", lambda settings, task: f"{settings.prefix}-{task}: version 1 restored")
    rollback.rollback(task="other", params=project / "params.yaml")
    rollback.rollback(params=project / "params.yaml")
    out = capsys.readouterr().out
    assert out == "headstart-other: version 1 restored\nheadstart-aws-type: version 1 restored\n"
