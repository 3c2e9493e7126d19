"""Commands end as a whole: with their children, and with those children that left the session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows import processes
from flows.processes import CommandTimeoutError, end, end_session, members, orphans, run

from .conftest import is_running


def command(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def start(script: str, *, directory: Path, limit_s: float = 60) -> tuple[int, list[str]]:
    lines: list[str] = []
    environment = dict(os.environ)
    code = run(command(script), directory=directory, environment=environment, limit_s=limit_s, on_line=lines.append)
    return code, lines


def test_lines_of_both_streams_and_the_exit_code(tmp_path: Path) -> None:
    script = "import sys; print('one'); sys.stdout.flush(); print('two', file=sys.stderr); sys.exit(3)"
    assert start(script, directory=tmp_path) == (3, ["one", "two"])


def test_bytes_that_are_no_text_do_not_stop_the_lines(tmp_path: Path) -> None:
    script = r"import sys; sys.stdout.buffer.write(b'a\xff\nlast\n')"
    assert start(script, directory=tmp_path) == (0, ["a\ufffd", "last"])


def test_a_time_limit_ends_children_too_even_in_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
import subprocess, sys, time
same = subprocess.Popen(["sleep", "600"])
other = subprocess.Popen(["sleep", "600"], start_new_session=True)
deaf = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
open("children", "w").write(f"{same.pid} {other.pid} {deaf.pid}")
time.sleep(600)
"""
    monkeypatch.setattr(processes, "GRACE_S", 0.5)
    with pytest.raises(CommandTimeoutError):
        start(script, directory=tmp_path, limit_s=3)
    children = [int(pid) for pid in (tmp_path / "children").read_text().split()]
    assert len(children) == 3
    assert not any(is_running(pid) for pid in children)


def test_a_daemon_that_holds_the_pipe_neither_blocks_nor_survives(tmp_path: Path) -> None:
    script = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"
    code, lines = start(script, directory=tmp_path, limit_s=60)
    assert code == 0
    assert not is_running(int(lines[0]))


def test_an_error_while_relaying_ends_the_command(tmp_path: Path) -> None:
    seen: list[int] = []

    def relay(line: str) -> None:
        seen.append(int(line))
        raise KeyboardInterrupt

    script = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with pytest.raises(KeyboardInterrupt):
        run(command(script), directory=tmp_path, environment=dict(os.environ), limit_s=60, on_line=relay)
    assert not is_running(seen[0])


def test_what_a_killed_run_left_is_known_by_its_mark(tmp_path: Path) -> None:
    run = subprocess.Popen(["true"])
    run.wait()
    left = subprocess.Popen(["sleep", "600"], env={processes.MARK: f"{run.pid} {tmp_path}"})
    elsewhere = subprocess.Popen(["sleep", "600"], env={processes.MARK: f"{run.pid} {tmp_path}/other"})
    running = subprocess.Popen(["sleep", "600"], env=processes.mark(tmp_path))
    try:
        assert [process.pid for process in orphans(tmp_path)] == [left.pid]
        end(orphans(tmp_path))
        assert left.wait() == -signal.SIGTERM
        assert is_running(elsewhere.pid)
        assert is_running(running.pid)
    finally:
        for process in (left, elsewhere, running):
            process.kill()
            process.wait()


def test_members_are_the_living_of_a_session() -> None:
    leader = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"], start_new_session=True)
    try:
        deadline = time.monotonic() + 20
        while len(members(leader.pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(members(leader.pid)) == 3
    finally:
        end_session(leader.pid)
    leader.wait()
    assert members(leader.pid) == []
