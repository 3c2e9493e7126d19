"""The Prefect server of a repository, with a quick program in place of Prefect's."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from components.core.errors import ConfigError
from flows import processes
from flows import server as module
from flows.processes import answers
from flows.server import OwnServer, server

from .conftest import is_running

ROOT = Path(__file__).parents[2]
#: `python -m prefect server start --host HOST --port PORT`
PREFECT = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"true")
    def log_message(self, *arguments): pass
if os.path.exists("broken"): sys.exit("no database")
open("pid", "w").write(str(os.getpid()))
HTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""
USE = """
import sys, time
from pathlib import Path
from flows.server import server
with server(port=int(sys.argv[1]), root=Path.cwd()) as found:
    print(found.address, flush=True)
    while True:
        found.ensure()
        time.sleep(0.1)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in whose processes `python -m prefect` is the quick program."""
    package = tmp_path / "programs" / "prefect"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(PREFECT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package.parent), str(ROOT)]))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    repository = tmp_path / "repository"
    repository.mkdir()
    return repository


Use = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def use(root: Path, port: int) -> Iterator[Use]:
    """Starts a process that uses the server, and waits until the server answers."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", USE, str(port)]
        process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert any(line.startswith(f"http://127.0.0.1:{port}/api") for line in process.stdout)
        return process

    yield start
    for process in started:
        processes.end(processes.descendants(process.pid))
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def until(ready: Callable[[], bool], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def pid_of_server(root: Path) -> int:
    # The file is empty for a moment while the server writes it.
    until(lambda: (root / "pid").read_text() != "")
    return int((root / "pid").read_text())


def test_nothing_outlives_a_killed_user(root, use):
    user = use()
    left = pid_of_server(root)
    user.kill()
    user.wait()
    until(lambda: not is_running(left))
    # The next one starts a server of its own.
    use()
    assert pid_of_server(root) != left


@pytest.mark.slow
def test_schedules_share_a_server_and_the_second_takes_over(root, port, use):
    first, second = use(), use()
    shared = pid_of_server(root)
    assert not psutil.Process(second.pid).children()
    first.kill()
    first.wait()
    until(lambda: pid_of_server(root) != shared and answers(f"http://127.0.0.1:{port}/api"))
    taken = pid_of_server(root)
    assert not is_running(shared) and [each.pid for each in psutil.Process(second.pid).children()] == [taken]
    second.terminate()
    second.wait()
    until(lambda: not is_running(taken))


@pytest.mark.parametrize("foreign", ["http.server", "prefect"])
def test_a_port_that_another_program_uses(root, port, foreign):
    """A Prefect server that does not belong to this repository is not used either: it may end at any time."""
    other = subprocess.Popen([sys.executable, "-m", foreign, str(port)], cwd=root)
    try:
        until(lambda: module.in_use(port))
        message = rf"^port {port} is used by another program; choose another one with --port, or name a Prefect"
        with pytest.raises(ConfigError, match=message), server(port=port, root=root):
            pass
    finally:
        other.kill()
        other.wait()


@pytest.mark.slow
def test_a_server_that_a_killed_run_has_left_at_the_port_is_ended(root, port):
    ended = subprocess.Popen(["true"])
    ended.wait()
    variables = {**os.environ, processes.MARK: f"{ended.pid} {root}"}
    left = subprocess.Popen([sys.executable, "-m", "prefect", str(port)], cwd=root, env=variables)
    until(lambda: module.in_use(port))
    with server(port=port, root=root) as result:
        assert left.wait(timeout=10) == -signal.SIGTERM
        assert answers(result.address) and os.environ["PREFECT_API_URL"] == result.address
        present = pid_of_server(root)
    assert "PREFECT_API_URL" not in os.environ
    assert not is_running(present)


def test_a_server_that_does_not_start(root, port):
    (root / "broken").touch()
    with pytest.raises(ConfigError, match=r"did not start; see .*server\.log"), server(port=port, root=root):
        pass
    assert "no database" in (root / ".headstart/prefect-server/server.log").read_text()


def test_no_server_is_started_if_one_is_configured(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example/api")
    with server(port=1, root=tmp_path) as result:
        assert result.address == "http://prefect.example/api" and not isinstance(result, OwnServer)


@pytest.mark.slow
def test_the_server_is_started_again_when_it_ends(root, port, use):
    use()
    first = pid_of_server(root)
    os.kill(first, signal.SIGKILL)
    until(lambda: pid_of_server(root) != first and answers(f"http://127.0.0.1:{port}/api"))
