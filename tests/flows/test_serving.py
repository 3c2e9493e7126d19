"""The deployment of a schedule: what its start and its end change on Prefect's server."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Completed, Pending, Running, Scheduled

from components.core.errors import ConfigError
from flows.flow_run import MISSED, Times, begin_scheduled
from flows.serving import STOPPED, Replaced, Schedule, _refuse_other, begin, close, create

NIGHTLY = Times(cron="0 3 * * *", timezone="Europe/Berlin")
HOURLY = Times(cron="", timezone="UTC", every=3600)
NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
OWNER = "/repository on a"


class Planned(SimpleNamespace):
    """A flow run: the hours since its start, its state, and whether the schedule has planned it."""

    def __init__(self, state: State[Any], *, hours: float = 0, planned: bool = True) -> None:
        time = datetime.now(UTC) - timedelta(hours=hours)
        super().__init__(id=uuid4(), start_time=None, expected_start_time=time, auto_scheduled=planned, state=state)

    @property
    def state_type(self) -> StateType:
        return self.state.type

    @property
    def state_name(self) -> str:
        return self.state.name


class Client:
    """A Prefect server."""

    def __init__(self, *runs: Planned) -> None:
        self.runs = {run.id: run for run in runs}
        self.paused: list[Any] = []
        self.deployments: dict[str, SimpleNamespace] = {}

    def states(self) -> list[str]:
        return [run.state.name for run in self.runs.values()]

    def set_flow_run_state(self, run: UUID, state: State[Any], force: bool = False) -> None:
        self.runs[run].state = state

    def read_flow_runs(self, flow_run_filter: FlowRunFilter, **_: Any) -> list[Planned]:
        types, names = flow_run_filter.state.type.not_any_, flow_run_filter.state.name.not_any_
        return [run for run in self.runs.values() if run.state.type not in types and run.state.name not in names]

    def create_flow_run_from_deployment(self, deployment: UUID, *, state: State[Any], name: str) -> None:
        run = Planned(state, planned=False)
        self.runs[run.id] = run

    def read_deployment_by_name(self, name: str) -> SimpleNamespace:
        if name not in self.deployments:
            raise ObjectNotFound(http_exc=Exception(name))
        return self.deployments[name]

    def pause_deployment(self, deployment: Any) -> None:
        self.paused.append(deployment)


@pytest.mark.parametrize(
    ("times", "after", "until", "first"),
    [
        (NIGHTLY, NOON, NOON + timedelta(hours=13), None),
        # 03:00 in Berlin is 02:00 UTC.
        (NIGHTLY, NOON, NOON + timedelta(hours=14), NOON + timedelta(hours=14)),
        (NIGHTLY, NOON, NOON + timedelta(days=30), NOON + timedelta(hours=14)),
        (NIGHTLY, NOON + timedelta(hours=14), NOON + timedelta(hours=20), None),
        (HOURLY, NOON, NOON + timedelta(minutes=59), None),
        (HOURLY, NOON, NOON + timedelta(hours=7), NOON + timedelta(hours=1)),
    ],
)
def test_the_first_time_in_an_interval(times, after, until, first):
    assert times.first(after=after, until=until) == first


STOP: State[Any] = Cancelled(name=STOPPED)
SKIPPED: State[Any] = Cancelled(name=MISSED)


@pytest.mark.parametrize(
    ("runs", "states", "said"),
    [
        ([], [], ""),
        ([Planned(Completed(), hours=0.5)], ["Completed"], ""),
        ([Planned(Completed(), hours=30)], ["Completed", "Scheduled"], "was missed; running once now"),
        # A killed schedule; one run makes up for both.
        (
            [Planned(Running()), Planned(Pending()), Planned(Scheduled(), planned=False)],
            [STOPPED, STOPPED, "Scheduled", "Scheduled"],
            "the last run did not end; running once now",
        ),
        (
            [Planned(Completed(), hours=5), Planned(STOP, hours=0.5), Planned(SKIPPED)],
            ["Completed", "Stopped", "Missed", "Scheduled"],
            "the last run did not end; running once now",
        ),
    ],
)
def test_a_run_that_is_owed_is_made_up_for_once(runs, states, said, capsys):
    client: Any = Client(*runs)
    begin(client, uuid4(), HOURLY, catch_up=True)
    assert client.states() == states
    output = capsys.readouterr().out
    assert said in output and bool(said) == bool(output)


def test_nothing_is_made_up_for_on_request():
    client: Any = Client(Planned(Completed(), hours=30), Planned(Running()))
    begin(client, uuid4(), HOURLY, catch_up=False)
    assert client.states() == ["Completed", STOPPED]


def test_the_end_marks_the_run_in_progress(monkeypatch):
    client: Any = Client(Planned(Completed()), Planned(Running()), Planned(Scheduled()))
    deployment = uuid4()
    close(client, deployment)
    assert client.states() == ["Completed", STOPPED, "Scheduled"] and client.paused == [deployment]

    def away(*_, **__):
        raise httpx.ConnectError("Connection refused")

    monkeypatch.setattr(client, "pause_deployment", away)
    close(client, deployment)


def test_one_owner_serves_a_name_on_a_server(monkeypatch):
    monkeypatch.setattr("prefect.deployments.runner.RunnerDeployment.apply", lambda self: self.entrypoint)
    client: Any = Client()
    schedule = Schedule("nightly", "/repository/params.yaml", True, OWNER, HOURLY)
    client.deployments["retrain/nightly"] = SimpleNamespace(
        id="earlier", work_pool_name=None, paused=False, description=""
    )
    assert create(client, schedule, replace=False) == "flows.sync.sync"
    assert client.paused == ["earlier"]
    served = SimpleNamespace(id="a", work_pool_name=None, paused=False, description="/repository on b")
    client.deployments["sync/nightly"] = served
    with pytest.raises(ConfigError, match=r"already run on this Prefect server \(/repository on b\); stop it, choose"):
        create(client, schedule, replace=False)
    create(client, schedule, replace=True)
    client.deployments = {"retrain/nightly": served}
    with pytest.raises(ConfigError, match="already run on this Prefect server"):
        create(client, schedule, replace=False)
    client.deployments = {"sync/nightly": served}
    served.paused = True
    create(client, schedule, replace=False)
    served.work_pool_name = "headstart"
    with pytest.raises(ConfigError, match="the work pool headstart serves it; choose another --name"):
        create(client, schedule, replace=True)


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


def test_an_owner_that_was_replaced_leaves_the_deployment_alone():
    schedule = Schedule("nightly", "/repository/params.yaml", True, OWNER, HOURLY)
    client: Any = SimpleNamespace()
    for owner in (OWNER, "", None, "/repository on b"):
        client.read_deployment = Mock(return_value=SimpleNamespace(description=owner))
        if owner != "/repository on b":
            _refuse_other(client, uuid4(), schedule)
    with pytest.raises(Replaced, match="/repository on b"):
        _refuse_other(client, uuid4(), schedule)
