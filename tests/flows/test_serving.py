"""The loop of a schedule, with a server and runs that are quick."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling, Pending, Running, Scheduled

from components.errors import ConfigError
from flows import serving as module
from flows.missed import Record, Times
from flows.retrain import retrain
from flows.server import Server
from flows.serving import Serving, Stopped, due, limited, stoppable
from flows.sync import sync

from .conftest import is_running

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
HOURLY = Times(cron="", timezone="UTC", every=3600)


class Planned(SimpleNamespace):
    """A flow run: its time in minutes after noon, and whether the schedule has planned it."""

    def __init__(self, minutes: float, *, planned: bool = True, state: State[Any] | None = None) -> None:
        time_ = NOON + timedelta(minutes=minutes)
        super().__init__(
            id=uuid4(), next_scheduled_start_time=time_, auto_scheduled=planned, state=state or Scheduled()
        )


def test_of_several_times_that_have_passed_the_last_one_is_run() -> None:
    runs = [Planned(3), Planned(1), Planned(2)]
    assert due(runs) == (runs[0], [runs[1], runs[2]])
    assert due(runs[:1]) == (runs[0], [])
    assert due([]) == (None, [])


def test_all_runs_that_a_person_has_started_are_run() -> None:
    runs = [Planned(1), Planned(2, planned=False), Planned(3, planned=False), Planned(4)]
    assert due(runs) == (runs[1], [runs[0]])
    assert due(runs[2:]) == (runs[2], [])


class Client:
    """A Prefect server: its runs, and whether it answers."""

    def __init__(self) -> None:
        self.runs: dict[UUID, Planned] = {}
        self.answers = True
        self.paused: list[str] = []
        self.deployments: dict[str, SimpleNamespace] = {}

    def add(self, run: Planned) -> Planned:
        self.runs[run.id] = run
        return run

    def states(self) -> list[str]:
        return [run.state.name for run in self.runs.values()]

    def _check(self) -> None:
        if not self.answers:
            raise httpx.ConnectError("Connection refused")

    def get_scheduled_flow_runs_for_deployments(self, ids: list[UUID], *, scheduled_before: datetime) -> list[Planned]:
        self._check()
        # As Prefect's server, at most so many at a time.
        return [run for run in self.runs.values() if run.state.type == StateType.SCHEDULED][:2]

    def set_flow_run_state(self, run: UUID, state: State[Any], force: bool = False) -> SimpleNamespace:
        self._check()
        if run not in self.runs:
            raise ObjectNotFound(http_exc=Exception(str(run)))
        self.runs[run].state = state
        return SimpleNamespace(state=state)

    def read_flow_run(self, run: UUID) -> Planned:
        self._check()
        if run not in self.runs:
            raise ObjectNotFound(http_exc=Exception(str(run)))
        return self.runs[run]

    def read_flow_runs(self, **_: Any) -> list[Planned]:
        return [run for run in self.runs.values() if run.state.type in module.LEFT]

    def create_flow_run_from_deployment(self, deployment: UUID, *, state: State[Any], name: str) -> None:
        self.add(Planned(0, planned=False, state=state))

    def read_deployment_by_name(self, name: str) -> SimpleNamespace:
        if name not in self.deployments:
            raise ObjectNotFound(http_exc=Exception(name))
        return self.deployments[name]

    def pause_deployment(self, deployment: str) -> None:
        self._check()
        self.paused.append(deployment)


class Ensured(Server):
    """Counts the calls."""

    calls = 0

    def ensure(self) -> None:
        self.calls += 1


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def serving(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serving:
    """A schedule whose runs write their pid and run `python run.py`; one second is a long time for it."""
    package = tmp_path / "programs" / "prefect"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "engine.py").write_text(
        "import os, runpy\nopen('pid', 'w').write(str(os.getpid()))\nrunpy.run_path('run.py')\n"
    )
    (tmp_path / "run.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package.parent), str(ROOT)]))
    monkeypatch.setattr(module, "POLL_S", 0.05)
    monkeypatch.setattr(module, "STOP_S", 0.5)
    made = Serving(
        client,  # type: ignore[arg-type]
        name="nightly",
        params=tmp_path / "params.yaml",
        root=tmp_path,
        server=Ensured("", None),
        record=Record(tmp_path / "nightly.json", HOURLY),
    )
    made._deployment, made._flow = uuid4(), retrain
    return made


def loop(serving: Serving, *, until: Callable[[], bool], seconds: float = 60) -> None:
    """Run the loop until a condition holds; SIGTERM ends it."""

    def watch() -> None:
        deadline = time.monotonic() + seconds
        while not until() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=watch)
    with stoppable(), pytest.raises(Stopped):
        watcher.start()
        serving.loop(SimpleNamespace(renew=lambda: None))  # type: ignore[arg-type]
    watcher.join()
    assert until()


def test_missed_times_are_run_once(serving: Serving, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    for minutes in range(5):
        client.add(Planned(minutes))
    loop(serving, until=lambda: all(state != "Scheduled" for state in client.states()) and serving._active is None)
    # The quick run ends without a final state of its own.
    assert client.states() == ["Missed"] * 4 + ["Crashed"]
    assert "4 earlier times have passed; one run does for all" in capsys.readouterr().out
    assert serving._record.owed(datetime.now(UTC)) == ""


def test_the_loop_survives_a_server_that_does_not_answer(
    serving: Serving, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answers = False
    server = serving._server
    assert isinstance(server, Ensured)
    loop(serving, until=lambda: server.calls > 3)
    client.answers = True
    client.add(Planned(1))
    loop(serving, until=lambda: client.states() == ["Crashed"])
    assert capsys.readouterr().out.splitlines()[:2] == [
        "the Prefect server does not answer (Connection refused); trying again",
        "the Prefect server answers again",
    ]


def test_the_end_of_a_schedule_ends_a_run_that_ignores_sigterm(
    serving: Serving, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "run.py").write_text(
        "import signal, subprocess, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "open('child', 'w').write(str(child.pid))\ntime.sleep(600)\n"
    )
    client.add(Planned(1))
    child = tmp_path / "child"
    loop(serving, until=lambda: child.exists() and bool(child.read_text()))
    pids = [int((tmp_path / name).read_text()) for name in ("pid", "child")]
    serving.stop()
    with limited():
        serving.close()
    assert not any(is_running(pid) for pid in pids)
    assert client.states() == ["Cancelled"]
    # The next start makes up for it.
    assert Record(tmp_path / "nightly.json", HOURLY).owed(datetime.now(UTC)) == "the last run did not end"


def test_a_run_that_a_person_cancels_is_ended(serving: Serving, client: Client, tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("import time\ntime.sleep(600)\n")
    run = client.add(Planned(1))
    pid = tmp_path / "pid"

    def cancelled() -> bool:
        if pid.exists() and run.state.type == StateType.PENDING:
            run.state = Cancelling()
        return bool(run.state.type == StateType.CANCELLED)

    loop(serving, until=cancelled)
    assert not is_running(int(pid.read_text()))


def test_a_run_that_a_person_deletes_does_not_stop_the_schedule(
    serving: Serving, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.py").write_text(
        "import pathlib, time\nwhile not pathlib.Path('end').exists():\n    time.sleep(0.02)\n"
    )
    deleted, later = client.add(Planned(1)), Planned(2)
    pid = tmp_path / "pid"

    def done() -> bool:
        if deleted.id in client.runs and pid.exists():
            del client.runs[deleted.id]
            client.add(later)
            (tmp_path / "end").touch()
        return bool(later.state.type == StateType.CRASHED)

    loop(serving, until=done, seconds=20)
    assert "does not answer" not in capsys.readouterr().out


def test_a_killed_schedule_takes_its_run_with_it(tmp_path: Path, serving: Serving) -> None:
    (tmp_path / "run.py").write_text("import time\ntime.sleep(600)\n")
    program = (
        "import signal, subprocess, sys, time\nfrom flows.tied import tied\n"
        "subprocess.Popen(tied([sys.executable, '-m', 'prefect.engine'], number=signal.SIGTERM))\ntime.sleep(600)\n"
    )
    schedule = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path)
    pid = tmp_path / "pid"
    deadline = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    schedule.kill()
    schedule.wait()
    while is_running(int(pid.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_start_closes_what_a_killed_owner_has_left(
    serving: Serving, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    for state in (Running(), Pending(), Scheduled(), Scheduled()):
        client.add(Planned(1, state=state))
    serving.begin(catch_up=True)
    assert client.states() == ["Crashed", "Crashed", "Missed", "Missed"]
    assert capsys.readouterr().out == ""


def test_a_missed_run_is_made_up_for_at_the_start(
    serving: Serving, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    serving._record.passed(datetime.now(UTC) - timedelta(days=7))
    serving.begin(catch_up=True)
    assert client.states() == ["Scheduled"]
    assert "was missed; running once now" in capsys.readouterr().out
    serving._record.passed(datetime.now(UTC) - timedelta(days=7))
    serving.begin(catch_up=False)
    assert len(client.runs) == 1
    assert serving._record.owed(datetime.now(UTC)) == ""


def test_the_deployment_of_the_other_flow_is_paused_and_that_of_a_work_pool_left_alone(
    serving: Serving, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prefect.deployments.runner.RunnerDeployment.apply", lambda self: self.name)
    client.deployments["retrain/nightly"] = SimpleNamespace(id="earlier", work_pool_name=None, paused=False)
    serving.create(HOURLY, flow=sync, other=retrain)
    assert client.paused == ["earlier"]
    client.deployments["sync/nightly"] = SimpleNamespace(id="pool", work_pool_name="headstart", paused=False)
    with pytest.raises(ConfigError, match="the work pool headstart serves sync/nightly; choose another --name"):
        serving.create(HOURLY, flow=sync, other=retrain)


def test_a_stalled_server_does_not_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    began = time.monotonic()
    with limited():
        time.sleep(60)
    assert time.monotonic() - began < 30
