"""Scheduled runs with a real Prefect server, its runner and an interval of a few seconds."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.deployments.runner import EntrypointType
from prefect.states import Cancelled, Crashed, Running

from components.core.artifacts import try_lock
from components.core.errors import ConfigError
from flows import processes, schedule
from flows.flow_run import KILLED, MISSED, RUNNER, begin_scheduled
from flows.repository import write_locked
from flows.retrain import retrain
from tests.conftest import until

from .conftest import is_running, ran, server_of


@pytest.fixture
def serve(project: Path, prefect_home: Path, port: int) -> Iterator[object]:
    """Starts `headstart schedule --every 20` on the project, with its own Prefect server."""
    environment = {**os.environ, "PREFECT_HOME": str(prefect_home)}
    for name in ("PREFECT_API_URL", processes.MARK):
        environment.pop(name, None)
    command = [sys.executable, "-m", "components.cli", "schedule", "--every", "20", "--port", str(port)]
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        with (project / ".headstart.log").open("a") as log:
            started.append(subprocess.Popen(command, cwd=project, env=environment, stdout=log, stderr=log))
        return started[-1]

    yield start
    for process in started:
        processes.end(processes.descendants(process.pid))
        process.wait()


def wait_for(what: str, *, project: Path, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    log = project / "ran.log"
    while not (log.exists() and what in log.read_text()):
        assert time.monotonic() < deadline, (project / ".headstart.log").read_text()
        time.sleep(0.2)


def listed(what: str, *, home: Path, port: int) -> list[dict[str, Any]]:
    """All `deployments` or `flow_runs` of a server."""
    options: dict[str, Any] = {"auth": tuple((home / "auth").read_text().split(":"))}
    address, client = f"http://127.0.0.1:{port}/api", "test"
    token = httpx.get(f"{address}/csrf-token", params={"client": client}, **options).json()["token"]
    headers = {"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": token}
    answer = httpx.post(f"{address}/{what}/filter", json={}, headers=headers, **options)
    return list(answer.raise_for_status().json())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_scheduled_runs(project, serve, port, prefect_home):
    """Runs start on schedule, skip what is up to date, and retrain after a change of the data."""
    served = serve()
    wait_for("register registry", project=project)
    assert ran(project) == ["ingest general", "ingest domain", "pretrain model", "evaluate scores", "register registry"]

    # A second one is refused, and changes nothing.
    second = serve()
    assert second.wait() == 2
    assert f"already served here (process {served.pid} since " in (project / ".headstart.log").read_text()
    (deployment,) = listed("deployments", home=prefect_home, port=port)
    assert re.fullmatch(rf"scheduled-{project.name}-[0-9a-f]{{6}}", deployment["name"])
    assert [each["schedule"]["interval"] for each in deployment["schedules"]] == [20]

    # Scheduling goes on after the end of the server.
    psutil.Process(server_of(prefect_home)["pid"]).kill()
    (project / "data/domain/aws/b.txt").write_text("more\n")
    wait_for("evaluate scores", project=project)
    wait_for("register registry", project=project)
    done = ran(project)
    assert done[-3:] == ["ingest domain", "evaluate scores", "register registry"]
    assert set(done[:-3]) <= {"register registry"}

    # A killed schedule leaves no process, and the next one starts the run again that did not end.
    (project / "trouble").write_text("pretrain hang")
    (project / "data/general/b.txt").write_text("general too\n")
    wait_for("pretrain model", project=project)
    server = server_of(prefect_home)["pid"]
    started = [process for process in processes.descendants(served.pid) if process.pid != server]
    served.kill()
    served.wait()
    until(lambda: not any(is_running(process.pid) for process in started))
    ran(project)
    again = serve()
    wait_for("pretrain model", project=project)
    assert "the last run did not end; running once now" in (project / ".headstart.log").read_text()
    runs = listed("flow_runs", home=prefect_home, port=port)
    assert [each["state_type"] for each in runs].count("CRASHED") == 1

    # SIGTERM during a run ends the run and the schedule.
    started = [process for process in processes.descendants(again.pid) if process.pid != server]
    again.send_signal(signal.SIGTERM)
    assert again.wait(timeout=60) == 0
    # The fork server of the run notices the end of its last process.
    until(lambda: not any(is_running(process.pid) for process in started), limit_s=20)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"cron": "at three"}, "--cron 'at three', --timezone 'Asia/Bangkok': must be minute hour day month weekday"),
        ({"timezone": "Mars/Base"}, r"--timezone 'Mars/Base': must be .* and a time zone, such as Europe/Berlin"),
        ({"params": Path("absent.yaml")}, "absent.yaml: does not exist; name the settings file with --params"),
        *(({"name": name}, "must consist of lower-case") for name in ("", "Nightly", "a b", "../a", "-a", "a" * 61)),
    ],
)
def test_wrong_flags_are_refused(flags, message, project, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.setattr("tzlocal.get_localzone_name", lambda: "Asia/Bangkok")
    with pytest.raises(ConfigError, match=message):
        schedule.command(**{**vars(schedule.Flags()), **flags})


def test_the_schedule_has_the_time_zone_and_the_flow_that_was_asked_for(project, monkeypatch):
    served: list[tuple[str, str, object]] = []
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example/api")
    monkeypatch.setattr("flows.server._ask", lambda *_: None)
    monkeypatch.setattr("flows.notify.install", lambda *_, **__: [])
    monkeypatch.setattr(schedule, "serve", lambda what, name, given, times: served.append((what, name, times)))
    given = {"params": project / "params.yaml", "synchronise": True, "timezone": "Asia/Bangkok"}
    schedule.command(**{**vars(schedule.Flags()), **given})
    ((what, name, times),) = served
    (due,) = times["schedules"]
    assert (what, due.cron, due.timezone) == ("sync", "0 3 * * *", "Asia/Bangkok")
    # Another host, or a clone in another folder, has another name on the same server.
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    schedule.command(**{**vars(schedule.Flags()), **given})
    assert served[1][1] != name and served[1][1][:-6] == name[:-6]
    with (project / ".headstart/schedules/scheduled.lock").open("a+") as lock:
        assert try_lock(lock)
        write_locked(lock, pid=7, since="now")
        with pytest.raises(ConfigError, match=r"already served here \(process 7 since now\)"):
            schedule.command(**{**vars(schedule.Flags()), **given})
        schedule.command(**{**vars(schedule.Flags()), **given, "name": "weekly"})


def test_a_scheduled_run_does_for_those_that_are_late(monkeypatch):
    deployment = uuid4()
    late = [SimpleNamespace(id=uuid4(), auto_scheduled=auto) for auto in (True, True, False)]
    cancelled: dict[UUID, str] = {}

    @contextmanager
    def client(*, sync_client):
        yield SimpleNamespace(
            get_scheduled_flow_runs_for_deployments=lambda ids, scheduled_before: late if ids == [deployment] else [],
            set_flow_run_state=lambda run, state, force: cancelled.update({run: state.name}),
        )

    monkeypatch.setattr("prefect.client.orchestration.get_client", client)
    assert begin_scheduled() == 0  # outside of a run
    run = SimpleNamespace(id=uuid4(), deployment_id=deployment, auto_scheduled=True)
    monkeypatch.setattr("prefect.context.FlowRunContext.get", lambda: SimpleNamespace(flow_run=run))
    assert begin_scheduled() == 2
    assert cancelled == {late[0].id: MISSED, late[1].id: MISSED}
    run.auto_scheduled = False
    assert begin_scheduled() == 0


@pytest.mark.parametrize(
    ("states", "left", "again"),
    [
        ([], [], 0),
        ([Running()], [("Crashed", KILLED)], 1),
        ([Running(), Crashed(message="by itself")], [("Crashed", "by itself")], 1),
        ([Running(), Cancelled(message=schedule.SHUTDOWN)], [("Cancelled", "Runner is shutting down.")], 1),
        ([Running(), Cancelled(message="by hand")], [("Cancelled", "by hand")], 0),
    ],
)
def test_a_run_that_did_not_end_is_made_up_for(states, left, again, prefect_server, capsys):
    deployment = retrain.to_deployment(name="ended", entrypoint_type=EntrypointType.MODULE_PATH).apply()
    with get_client(sync_client=True) as client:
        run = client.create_flow_run_from_deployment(deployment) if states else None
        for state in states:
            client.set_flow_run_state(run.id, state, force=True)
        schedule.restart(deployment)
        assert capsys.readouterr().out.count("the last run did not end; running once now") == again
        states = [each.state for each in client.read_flow_runs() if each.deployment_id == deployment]
        assert sorted((state.name, state.message) for state in states) == [*left, *[("Scheduled", None)] * again]
        client.delete_deployment(deployment)


def test_the_deployment_of_the_other_flow_is_paused(prefect_server, monkeypatch):
    monkeypatch.setattr("prefect.Flow.serve", lambda *_, **__: None)
    monkeypatch.setenv(RUNNER, "")
    with get_client(sync_client=True) as client:

        def paused() -> dict[str, bool]:
            return {what: client.read_deployment_by_name(f"{what}/both").paused for what in ("retrain", "sync")}

        schedule.serve("retrain", "both", {"params": "p"}, {"interval": 3600})
        schedule.serve("sync", "both", {"params": "p"}, {"interval": 3600})
        assert paused() == {"retrain": True, "sync": False}
        # Nor does a schedule that was paused by hand stay so.
        old = client.read_deployment_by_name("retrain/both")
        client.update_deployment_schedule(old.id, old.schedules[0].id, active=False)
        schedule.serve("retrain", "both", {"params": "p"}, {"interval": 3600})
        assert paused() == {"retrain": False, "sync": True}
        assert [each.active for each in client.read_deployment_by_name("retrain/both").schedules] == [True]
        for what in paused():
            client.delete_deployment(client.read_deployment_by_name(f"{what}/both").id)
