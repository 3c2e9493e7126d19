"""`infra/local-stack scheduled`: the data of its two versions, the colleague's commits, and the count of requests."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from infra.stack import scheduled, stack
from infra.stack.origin import Colleague
from tests.infra.test_stack import PORTS


def test_the_data_has_so_many_labels_per_class(tmp_path: Path) -> None:
    for name in ("general", "domain", "parallel", f"tasks/{scheduled.TASK}", "tasks/other"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "test.jsonl").write_text("{}\n")
    train = tmp_path / "data" / "tasks" / scheduled.TASK / "train.jsonl"
    train.write_text(
        "".join(json.dumps({"text": str(number), "label": "ab"[number % 2]}) + "\n" for number in range(600))
    )
    copy = tmp_path / "copy"
    for labels in scheduled.LABELS:
        scheduled.write_data(tmp_path / "data", copy, labels=labels)
        kept = (copy / "tasks" / scheduled.TASK / "train.jsonl").read_text().splitlines()
        assert Counter(json.loads(line)["label"] for line in kept) == {"a": labels, "b": labels}
        assert sorted(str(path.relative_to(copy)) for path in copy.rglob("test.jsonl")) == [
            "domain/test.jsonl",
            "general/test.jsonl",
            f"tasks/{scheduled.TASK}/test.jsonl",
        ]
    assert len(train.read_text().splitlines()) == 600


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


@pytest.fixture
def answering() -> Iterator[tuple[str, dict[str, str]]]:
    """A prediction server: its address, and its version, `broken` for an error."""
    state = {"version": "1"}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            good = state["version"] != "broken" and self.headers["Authorization"] == "Bearer token"
            self.send_response(200 if good else 503)
            self.end_headers()
            rows = [{"label": "x"} for _ in body["inputs"]["text"]]
            self.wfile.write(json.dumps({"predictions": rows, "model": {"version": state["version"]}}).encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", state
        server.shutdown()
        thread.join()


def test_answers_are_counted_by_version_and_failures_are_kept(answering: tuple[str, dict[str, str]]) -> None:
    address, state = answering
    clients = scheduled.Clients(address, "token")

    def wait(ready: int) -> None:
        deadline = time.monotonic() + 60
        while sum(clients.versions.values()) + len(clients.failures) < ready:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    wait(2)
    assert not clients.failures and set(clients.versions) == {"1"}
    state["version"] = "broken"
    wait(5)
    state["version"] = "2"
    wait(len(clients.failures) + sum(clients.versions.values()) + 2)
    clients.stop()
    assert clients.failures and all("503" in failure for failure in clients.failures)
    assert set(clients.versions) == {"1", "2"} and clients.first["1"] < clients.first["2"]
    assert len(clients.seconds) == sum(clients.versions.values())
