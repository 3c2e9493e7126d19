"""`infra/local-stack run`: exit codes, and that started services are always stopped."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.stack import __main__ as command
from infra.stack import compose, stack
from tests.conftest import until

Run = Callable[..., int]


@pytest.fixture
def stopped() -> list[Path]:
    """The folders of stopped stacks."""
    return []


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, values: dict[str, str], stopped: list[Path]) -> Run:
    """`run` with fake services; returns the exit code."""

    @contextmanager
    def started(folder: Path, **_: Any) -> Iterator[stack.Stack]:
        services = stack.Stack(stack.Layout(folder), values, dict.fromkeys(compose.PORTS, 45000))
        services.layout.workspace.mkdir(parents=True)
        services.layout.logs.mkdir()
        services.layout.log("prefect-worker").touch()
        try:
            yield services
        finally:
            stopped.append(folder)

    monkeypatch.setattr(stack, "started", started)

    def call(*words: str) -> int:
        with pytest.raises(SystemExit) as ended:
            command.run(list(words) or None, folder=tmp_path / "stack")
        return int(ended.value.code or 0)

    return call


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_that_of_the_command_and_everything_is_stopped(run, tmp_path, stopped, code):
    assert run("sh", "-c", f"exit {code}") == code
    assert stopped == [tmp_path / "stack"]


def test_term_ends_the_command_and_stops_everything(run, tmp_path, stopped):
    before = signal.signal(signal.SIGTERM, command._interrupt)
    ready = tmp_path / "ready"

    def terminate():
        until(ready.exists)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=terminate)
    sender.start()
    try:
        code = run(
            "sh", "-c", f"trap 'touch {tmp_path}/ended; exit 1' TERM; touch {ready}; while :; do sleep 0.05; done"
        )
    finally:
        sender.join()
        signal.signal(signal.SIGTERM, before)
    assert code == 128 + signal.SIGTERM
    assert stopped == [tmp_path / "stack"]
    until((tmp_path / "ended").exists, limit_s=10)


def test_the_flow_is_a_run_of_its_deployment_and_its_lines_are_printed_once(
    monkeypatch, run, tmp_path, capsys, stopped
):
    worker = tmp_path / "stack" / "logs" / "prefect-worker.log"
    script = (
        f"echo 'ingest | done' >> {worker}; echo '04:00:00.000 | INFO | ingest | done' >> {worker}; echo events; exit 1"
    )
    assert command.FLOW[:3] == ["prefect", "deployment", "run"]
    monkeypatch.setattr(command, "FLOW", ["sh", "-c", script])
    assert run() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("$ sh -c ")
    assert lines[1:] == ["ingest | done", "events"]
    assert stopped == [tmp_path / "stack"]
