"""The Prefect server of a user, with a quick program in place of Prefect's application."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from components.core.errors import ConfigError
from flows import server as module
from flows.processes import MARK, answers, orphans
from flows.server import configured, ensure, server

from .conftest import is_running

ROOT = Path(__file__).parents[2]
#: In place of `prefect.server.api.server`.
APPLICATION = """
import os
if os.path.exists("broken"): raise SystemExit("no database")
def create_app(final):
    async def application(scope, receive, send):
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": b"true"})
    return application
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder of Prefect, whose servers run the quick application; none is left."""
    package = tmp_path / "programs" / "prefect" / "server" / "api"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    (package / "server.py").write_text(APPLICATION)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "programs"), str(ROOT)]))
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(module, "configured", lambda: "")
    yield tmp_path / "home"
    (tmp_path / "home").mkdir(exist_ok=True)
    if held := module._holder():
        psutil.Process(held["pid"]).kill()


def until(ready: Callable[[], bool], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def pid_of_server() -> int:
    return int(module._holder().get("pid", 0))


def test_all_users_share_a_server_which_outlives_them_and_is_started_again(home, port, monkeypatch):
    monkeypatch.setenv(MARK, f"{os.getpid()} {ROOT}")
    with server(port=port) as first:
        process = pid_of_server()
        assert first.address == os.environ["PREFECT_API_URL"] == f"http://127.0.0.1:{port}/api"
        assert os.environ["PREFECT_API_AUTH_STRING"] == first.auth and (home / "auth").stat().st_mode & 0o777 == 0o600
        commands = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
        assert not any(str(first.auth) in each for each in commands)
        with server() as second:
            assert (second.port, pid_of_server()) == (port, process)
        # It belongs to no run, whose end would end it.
        assert process not in {each.pid for each in orphans(ROOT)}
        assert psutil.Process(process).environ().get(MARK) is None
        psutil.Process(process).kill()
        until(lambda: not module._holder())
        ensure()
        assert pid_of_server() != process and answers(f"{first.address}/health")
    assert is_running(pid_of_server())


def test_it_ends_when_it_has_had_no_user_for_a_while(home, port, monkeypatch):
    monkeypatch.setenv(module.IDLE, "1")
    with server(port=port):
        process, began = pid_of_server(), time.monotonic()
        time.sleep(3)
        assert is_running(process), "it has a user"
    until(lambda: not is_running(process))
    assert time.monotonic() - began >= 3


def test_a_port_that_another_program_uses(home, port):
    other = subprocess.Popen([sys.executable, "-m", "http.server", str(port)], cwd=home.parent)
    try:
        until(lambda: module.in_use(port))
        message = rf"^port {port} is used by another program; choose another one with --port, or name a Prefect"
        with pytest.raises(ConfigError, match=message), server(port=port):
            pass
    finally:
        other.kill()
        other.wait()


def test_a_server_that_does_not_start(home, port):
    home.mkdir()
    (home / "broken").touch()
    with pytest.raises(ConfigError, match=r"did not start; see .*server\.log"), server(port=port):
        pass
    assert "no database" in (home / "server.log").read_text()


PROFILES = """
active = "quick"
[profiles.quick]
[profiles.team]
PREFECT_API_URL = "http://prefect.example/api"
"""


@pytest.mark.parametrize(
    ("variables", "profiles", "expected"),
    [
        ({}, "", "False False"),
        ({"PREFECT_API_URL": "http://prefect.example/api"}, "", "True False"),
        ({}, PROFILES, "False True"),
        ({}, PROFILES.replace('active = "quick"', 'active = "team"'), "True True"),
        ({"PREFECT_PROFILE": "team"}, PROFILES, "True True"),
        # Prefect reads no profile without the file.
        ({"PREFECT_PROFILE": "local"}, "", "False False"),
    ],
)
def test_a_server_may_be_configured_in_a_profile(tmp_path, variables, profiles, expected):
    if profiles:
        (tmp_path / "profiles.toml").write_text(profiles)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    script = "import sys; from flows.server import configured; print(bool(configured()), 'prefect' in sys.modules)"
    environment = {**ours, **variables, "PREFECT_HOME": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_no_server_is_started_if_one_is_configured(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example/api")
    with server(port=1) as running:
        assert (running.address, running.port) == ("http://prefect.example/api", 0)
    assert configured() == "http://prefect.example/api"
