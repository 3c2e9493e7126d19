"""The flows promote and predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.errors import ConfigError
from components.registry import commands
from components.settings.registry import RegistrySettings
from flows import dvc_tasks, predict, promote
from flows.repository import locked
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
    written = predict.predict(
        str(source), str(output), task="aws-type", columns=["text=body"], int8=True, params=params
    )
    assert written == str(output)
    flags = ("--column", "text=body", "--params", params, "--task", "aws-type", "--int8")
    assert calls == [(("predict-file", str(source), str(output), *flags), {"source": "predict", "root": project})]


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


def test_a_version_is_chosen_without_the_lock_of_the_repository(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def assign(settings: RegistrySettings, task: str, *, version: str, reason: str, force: bool) -> str:
        return f"{settings.model_name(task)}: {version}, {reason}, {Path.cwd() == project}"

    monkeypatch.setattr(commands, "assign", assign)
    monkeypatch.chdir(project.parent)
    with locked(project, what="a retraining", say=print):
        promote.command(version="2", reason="fresher", params=project / "params.yaml")
        promote.command(version="3", reason="cheaper", task="other", params=project / "params.yaml")
    out = capsys.readouterr().out
    assert out == "headstart-aws-type: 2, fresher, True\nheadstart-other: 3, cheaper, True\n"
    with pytest.raises(ConfigError, match="--reason, --task and --force belong to --version"):
        promote.command(reason="fresher")
