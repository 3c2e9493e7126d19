"""Commands end with all of their processes, also those in other sessions, and no line of output is lost."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flows import processes, retrain_command
from flows.command import main
from flows.processes import CommandTimeoutError, orphans, run

from .conftest import is_running


def command(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def start(script: str, *, directory: Path, limit_s: float = 60) -> tuple[int, list[str]]:
    lines: list[str] = []
    environment = dict(os.environ)
    code = run(command(script), directory=directory, environment=environment, limit_s=limit_s, on_line=lines.append)
    return code, lines


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import sys; print('a', flush=True); print('b', file=sys.stderr); sys.exit(3)", (3, ["a", "b"])),
        (r"import sys; sys.stdout.buffer.write(b'a\xff\nlast\n')", (0, ["a\ufffd", "last"])),
    ],
)
def test_lines_of_both_streams_and_the_exit_code(tmp_path, script, expected):
    assert start(script, directory=tmp_path) == expected


@pytest.fixture
def busy() -> Iterator[None]:
    """Another thread of this process holds the interpreter lock and releases it only when it has to."""
    stopped = threading.Event()

    def loop() -> None:
        while not stopped.is_set():
            pass

    thread = threading.Thread(target=loop)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.3)
    thread.start()
    yield
    stopped.set()
    sys.setswitchinterval(interval)
    thread.join()


@pytest.mark.slow
def test_no_line_is_lost_while_another_thread_holds_the_interpreter_lock(tmp_path, busy):
    expected = [str(number) for number in range(1, 10_001)]
    for _ in range(20):
        lines: list[str] = []
        run(["seq", "10000"], directory=tmp_path, environment=os.environ, limit_s=60, on_line=lines.append)
        assert lines == expected


def test_a_daemon_that_keeps_writing_to_the_pipe_does_not_block(tmp_path):
    """The daemon has left the session, so it is not ended with the command."""
    daemon = "import os; open('daemon', 'w').write(str(os.getpid())); [print('chatter') for _ in iter(int, 1)]"
    script = f"""
import os, subprocess, sys, time
if os.fork() == 0:
    subprocess.Popen([sys.executable, "-c", {daemon!r}], start_new_session=True)
    os._exit(0)
while not os.path.exists("daemon") or not open("daemon").read():
    time.sleep(0.01)
print("last line")
"""
    try:
        code, lines = start(script, directory=tmp_path)
        assert code == 0
        assert any("last line" in line for line in lines)
        assert "chatter" in lines
    finally:
        os.kill(int((tmp_path / "daemon").read_text()), signal.SIGKILL)


def test_a_time_limit_ends_children_in_every_session(tmp_path, monkeypatch):
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


def test_a_child_that_keeps_the_pipe_open_neither_blocks_nor_survives(tmp_path):
    script = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"
    code, lines = start(script, directory=tmp_path, limit_s=60)
    assert code == 0
    assert not is_running(int(lines[0]))


def test_an_exception_of_the_callback_ends_the_command(tmp_path):
    seen: list[int] = []

    def relay(line):
        seen.append(int(line))
        raise KeyboardInterrupt

    script = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with pytest.raises(KeyboardInterrupt):
        run(command(script), directory=tmp_path, environment=dict(os.environ), limit_s=60, on_line=relay)
    assert not is_running(seen[0])


def test_a_killed_run_is_recognised_while_it_is_a_zombie_and_after_its_pid_is_reused(tmp_path):
    zombie = subprocess.Popen(["true"])
    while psutil.Process(zombie.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    first = subprocess.Popen(["sleep", "600"], env={processes.MARK: f"{zombie.pid} {tmp_path}"})
    # The second process gets its mark only once the process with the pid in it has started.
    script = f'read pid; {processes.MARK}="$pid {tmp_path}" exec sleep 600'
    second = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, text=True)
    time.sleep(0.3)
    younger = subprocess.Popen(["sleep", "600"])
    try:
        assert second.stdin is not None
        second.stdin.write(f"{younger.pid}\n")
        second.stdin.close()
        while psutil.Process(second.pid).name() != "sleep":
            time.sleep(0.01)
        assert {process.pid for process in orphans(tmp_path)} == {first.pid, second.pid}
    finally:
        for process in (first, second, younger):
            process.kill()
            process.wait()
        zombie.wait()


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(monkeypatch, capsys):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["command", "retrain"])
    monkeypatch.setattr(retrain_command, "command", interrupted)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    shown = capsys.readouterr().out
    assert "are kept: `headstart retrain` goes on there\n" in shown
