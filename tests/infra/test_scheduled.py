"""`infra/local-stack scheduled`: the data of its two versions, the colleague's commits, and the count of requests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from infra.stack import stack
from infra.stack.origin import Colleague
from tests.infra.test_stack import PORTS


@pytest.fixture
def running(tmp_path: Path, values: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> stack.Stack:
    """A stack of which only the origin exists; `dvc` does nothing but write data.dvc."""
    layout = stack.Layout(tmp_path)
    source = tmp_path / "source"
    source.mkdir()
    (source / "params.yaml").write_text((stack.ROOT / "params.yaml").read_text())
    (source / ".gitignore").write_text("/data\n")
    subprocess.run(["git", "init", "-q", "-b", "main", source], check=True)
    subprocess.run(["git", "-C", source, "add", "."], check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", source, *who, "commit", "-q", "-m", "one"], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", source, layout.origin], check=True)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "dvc").write_text('#!/bin/sh\n[ "$1" != add ] || cat data/* > data.dvc\n')
    (programs / "dvc").chmod(0o755)
    made = stack.Stack(layout, values | {"HEADSTART_BRANCH": "main"}, PORTS, print)
    environment = made.client_environment()
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    monkeypatch.setattr(made, "client_environment", lambda: environment)
    return made


def test_the_colleague_commits_settings_and_data_and_takes_the_commits_of_runs(
    running: stack.Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADSTART_STORAGE", raising=False)
    (tmp_path / "over.yaml").write_text("run: {seed: 7}\n")
    colleague = Colleague(running)
    first = colleague.head()
    colleague.commit_params(tmp_path / "over.yaml")
    # A run commits.
    worker = tmp_path / "worker"
    subprocess.run(["git", "clone", "-q", running.layout.origin, worker], check=True)
    assert "seed: 7" in (worker / "params.yaml").read_text()
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", worker, *who, "commit", "-q", "--allow-empty", "-m", "Retrain"], check=True)
    subprocess.run(["git", "-C", worker, "push", "-q", "origin", "HEAD"], check=True)
    (colleague.path / "data").mkdir()
    (colleague.path / "data" / "a").write_text("new\n")
    assert Colleague(running).commit_data("more data") == colleague.head() != first
    assert [line.partition(" ")[2] for line in colleague.log()] == [
        "Colleague: more data",
        "a: Retrain",
        "Colleague: Settings of the local stack",
    ]
