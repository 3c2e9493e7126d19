"""Scheduled runs with a real Prefect server, a real runner and an interval of a few seconds."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from components.core.errors import ConfigError
from flows import processes
from flows.flow_run import Times
from flows.schedule import Flags, checked, checked_timezone, owned, schedule
from flows.server import Server

from .conftest import is_running, ran, server_of


@pytest.fixture
def served(project: Path, prefect_home: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """`headstart schedule --every 5` on the project, with its own Prefect server."""
    environment = {**os.environ, "PREFECT_HOME": str(prefect_home)}
    for name in ("PREFECT_API_URL", processes.MARK):
        environment.pop(name, None)
    command = [sys.executable, "-m", "flows.command", "schedule", "--every", "5", "--port", str(port)]
    with (project / ".headstart.log").open("w") as log:
        process = subprocess.Popen(command, cwd=project, env=environment, stdout=log, stderr=log)
    yield process
    processes.end(processes.descendants(process.pid))
    process.wait()


def wait_for(what: str, *, project: Path, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    log = project / "ran.log"
    while not (log.exists() and what in log.read_text()):
        assert time.monotonic() < deadline, (project / ".headstart.log").read_text()
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_scheduled_runs(project, served, port, prefect_home):
    """Runs start on schedule, skip what is up to date, and retrain after a change of the data."""
    wait_for("register registry", project=project)
    assert ran(project) == ["ingest general", "ingest domain", "pretrain model", "evaluate scores", "register registry"]

    # The second owner is refused, and changes nothing.
    command = [sys.executable, "-m", "flows.command", "schedule", "--every", "3600", "--port", str(port)]
    environment = {**os.environ, "PREFECT_HOME": str(prefect_home)}
    second = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert second.returncode == 2
    assert f"already run by another process (retrain params.yaml, every 5 s: process {served.pid} on" in second.stderr
    assert sum("flows.serving" in each.cmdline() for each in psutil.Process(served.pid).children()) == 1
    name = f"scheduled-{project.name}{Server('', None, port).suffix(project)}"
    address = f"http://127.0.0.1:{port}/api/deployments/name/retrain/{name}"
    secret = (prefect_home / "auth").read_text()
    result = httpx.get(address, auth=tuple(secret.split(":"))).json()
    assert [each["schedule"]["interval"] for each in result["schedules"]] == [5] and result["paused"] is False

    # Scheduling goes on after the end of the server.
    psutil.Process(server_of(prefect_home)["pid"]).kill()
    (project / "data/domain/aws/b.txt").write_text("more\n")
    wait_for("evaluate scores", project=project)
    wait_for("register registry", project=project)
    done = ran(project)
    assert done[-3:] == ["ingest domain", "evaluate scores", "register registry"]
    assert set(done[:-3]) <= {"register registry"}

    # SIGTERM during a run ends the run and pauses the schedule within 10 seconds; no process remains.
    (project / "trouble").write_text("pretrain hang")
    (project / "data/general/b.txt").write_text("general too\n")
    wait_for("pretrain model", project=project)
    server = server_of(prefect_home)["pid"]
    started = [process for process in processes.descendants(served.pid) if process.pid != server]
    assert httpx.get(address, auth=tuple(secret.split(":"))).json()["paused"] is False
    served.send_signal(signal.SIGTERM)
    assert served.wait(timeout=10) == 0
    assert not any(is_running(process.pid) for process in started)
    assert "the schedule is paused" in (project / ".headstart.log").read_text()


def test_cron_expressions_and_time_zones_are_checked(monkeypatch):
    assert checked("30 3 * * 1-5") == "30 3 * * 1-5"
    with pytest.raises(ConfigError, match="--cron 'at three': must be minute hour day month weekday"):
        checked("at three")
    assert checked_timezone("Asia/Bangkok") == "Asia/Bangkok"
    monkeypatch.setattr("tzlocal.get_localzone_name", lambda: "Europe/Berlin")
    assert checked_timezone("") == "Europe/Berlin"
    for name in ("Mars/Base", "../etc/passwd"):
        with pytest.raises(ConfigError, match=f"--timezone '{name}': unknown; use a name such as"):
            checked_timezone(name)


def test_the_schedule_has_the_time_zone_and_the_flow_that_was_asked_for(project, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example/api")
    served: list[Any] = []
    monkeypatch.setattr("flows.serving.serve", lambda schedule, **_: served.append(schedule))
    bangkok = Times("0 3 * * *", "Asia/Bangkok")
    monkeypatch.setattr("flows.server._ask", lambda *_: None)
    monkeypatch.setattr("flows.notify.install", lambda *_, **__: [])
    schedule(bangkok, Flags(synchronise=True, params=project / "params.yaml"))
    (result,) = served
    assert (result.times, result.name, result.flow().name) == (bangkok, "scheduled", "sync")


def test_a_missing_settings_file(tmp_path):
    with pytest.raises(ConfigError, match="does not exist; name the settings file with --params"):
        schedule(Times("0 3 * * *", "UTC"), Flags(params=tmp_path / "params.yaml"))


HOLD = """
import sys, time
from pathlib import Path
from flows.schedule import owned
with owned(Path(sys.argv[1]), name="nightly", what="retrain a", replace=False):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns the schedule `nightly`."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def take(root: Path, *, name: str = "nightly", replace: bool = False) -> None:
    with owned(root, name=name, what="retrain b", replace=replace):
        pass


def test_a_second_owner_is_refused_and_told_who_the_first_is(tmp_path, holder, monkeypatch):
    message = rf"retrain a: process {holder.pid} on {socket.gethostname()} since 20.*"
    with pytest.raises(ConfigError, match=rf"^--name nightly: already run by another process \({message}\); stop it"):
        take(tmp_path)
    take(tmp_path, name="weekly")
    with monkeypatch.context() as patched:
        patched.setattr("socket.gethostname", lambda: "elsewhere")
        with pytest.raises(ConfigError, match="--replace cannot end its owner"):
            take(tmp_path, replace=True)
    holder.kill()
    holder.wait()
    # The kernel has released the lock.
    take(tmp_path)


def test_replace_ends_the_owner(tmp_path, holder, capsys):
    take(tmp_path, replace=True)
    assert holder.wait(timeout=10) == -signal.SIGTERM
    assert capsys.readouterr().out.startswith("ending the present owner of nightly (retrain a: process ")


@pytest.mark.parametrize("name", ["", "Nightly", "a b", "../a", "-a", "a" * 61])
def test_names_are_checked(tmp_path, name):
    with pytest.raises(ConfigError, match="must consist of lower-case letters, digits and dashes"):
        take(tmp_path, name=name)
