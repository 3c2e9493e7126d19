"""The loop behind `headstart schedule`: starts the runs that are due, one at a time, each in a process of its own.

Prefect's server plans the runs of the deployment. This loop takes those that are due, and differs from Prefect's runner
in three points: of several times that have passed, only the last one is run; it survives the end of the server; and it
stops within seconds, its run included.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import State, StateType
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled, Crashed, Pending, Scheduled

from components.errors import ConfigError, TransientError
from flows.missed import MISSED, MISSED_MESSAGE, Record, Times
from flows.owner import Claim, Owner, ReplacedError
from flows.processes import descendants, end
from flows.repository import environment
from flows.retrain import retrain
from flows.server import Server
from flows.sync import sync
from flows.terminal import terminal
from flows.tied import tied

FLOWS: dict[bool, Flow[..., Any]] = {True: sync, False: retrain}
#: Seconds between two questions to the server.
POLL_S = 2.0
#: At the end of a schedule: seconds that the run in progress has to end by itself, and that the server has to record
#: it. With those of `flows.server` they sum to less than 10.
STOP_S = 3.5
ANSWER_S = 3.0
#: States of a run that a killed owner has left.
LEFT = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)
#: Errors of a server that does not answer, or not sensibly.
FAILURES = (httpx.HTTPError, PrefectException)


class Run(Protocol):
    """What `due` needs to know of a flow run."""

    @property
    def next_scheduled_start_time(self) -> datetime | None: ...
    @property
    def auto_scheduled(self) -> bool: ...


R = TypeVar("R", bound=Run)


def due(runs: Sequence[R]) -> tuple[R | None, list[R]]:
    """Of the runs whose time has come, the next one, and those that are not run.

    Of the runs that the schedule has planned only the last is run: it does the work of all. Runs that a person has
    started are all run.
    """
    first = datetime.min.replace(tzinfo=UTC)
    ordered = sorted(runs, key=lambda run: run.next_scheduled_start_time or first)
    planned = [run for run in ordered if run.auto_scheduled]
    left = [run for run in ordered if run not in planned[:-1]]
    return (left[0] if left else None), planned[:-1]


@dataclass
class Active:
    """A run in progress.

    Attributes:
        run: id of the flow run.
        process: its process.
        cancelled: whether a person has cancelled it.
    """

    run: UUID
    process: subprocess.Popen[bytes]
    cancelled: bool = False


class Stopped(BaseException):
    """SIGTERM, SIGHUP or Ctrl-C; not an error."""


def serve(
    *,
    name: str,
    params: Path,
    root: Path,
    times: Times,
    server: Server,
    owner: Owner,
    record: Record,
    synchronise: bool = False,
    replace: bool = False,
    catch_up: bool = True,
) -> None:
    """Create the deployment `retrain/NAME`, or `sync/NAME`, and start the runs that are due until SIGTERM or Ctrl-C.

    Args:
        name: of the schedule.
        params: the settings file.
        root: of the repository.
        times: when runs are due.
        server: Prefect's server.
        owner: this process.
        record: what has been done; it is kept for the next start.
        synchronise: whether each run pulls code and data first, and pushes and commits its result.
        replace: whether to take the name over from another repository or host.
        catch_up: whether to run at once if a time has passed since the last run, or if the last run did not end.

    Raises:
        ConfigError: another process owns the name on this server, or a work pool serves the deployment.
    """
    settings = {PREFECT_API_URL: server.address, PREFECT_CLIENT_MAX_RETRIES: 0}
    if server.auth:
        settings[PREFECT_API_AUTH_STRING] = server.auth
    with temporary_settings(settings), get_client(sync_client=True) as client, stoppable():
        serving = Serving(client, name=name, params=params, root=root, server=server, record=record)
        claim = Claim(client, name=name, owner=owner)
        try:
            try:
                claim.take(replace=replace)
                serving.create(times, flow=FLOWS[synchronise], other=FLOWS[not synchronise])
                serving.begin(catch_up=catch_up)
            except FAILURES as error:
                raise TransientError(f"{server.address}: the Prefect server does not answer ({error})") from error
            serving.loop(claim)
        except Stopped:
            serving.stop()
            with limited():
                serving.close()
                serving.pause()
                claim.release()
            terminal.say("ended; the schedule is paused until it is served again")
        except ReplacedError as error:
            serving.stop()
            with limited():
                serving.close()
            terminal.say(str(error))


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM, SIGHUP and Ctrl-C raise `Stopped`, once; further ones do not disturb the end."""

    def stop(number: int, _: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def limited() -> Iterator[None]:
    """Give the server `ANSWER_S` seconds and ignore its failures: what it is not told now, the next start tells it."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, ANSWER_S)
    try:
        with contextlib.suppress(TimeoutError, *FAILURES):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Serving:
    """A deployment and the run in progress."""

    def __init__(
        self, client: SyncPrefectClient, *, name: str, params: Path, root: Path, server: Server, record: Record
    ) -> None:
        self._client = client
        self._name = name
        self._params = params
        self._root = root
        self._server = server
        self._record = record
        self._flow: Flow[..., Any]
        self._deployment: UUID | None = None
        self._active: Active | None = None
        self._trouble = ""

    def create(self, times: Times, *, flow: Flow[..., Any], other: Flow[..., Any]) -> None:
        """Create or change the deployment, and pause the one of the other flow with the same name.

        Raises:
            ConfigError: a work pool serves the deployment.
        """
        for each in (flow, other):
            with contextlib.suppress(ObjectNotFound):
                found = self._client.read_deployment_by_name(f"{each.name}/{self._name}")
                if each is flow and found.work_pool_name:
                    raise ConfigError(
                        f"--name {self._name}: the work pool {found.work_pool_name} serves {each.name}/{self._name}; "
                        "choose another --name"
                    )
                if each is other and not found.work_pool_name and not found.paused:
                    self._client.pause_deployment(found.id)
        self._flow = flow
        deployment = flow.to_deployment(
            name=self._name, parameters={"params": str(self._params)}, paused=False, **times.prefect()
        )
        self._deployment = cast("UUID", cast("RunnerDeployment", deployment).apply())

    def begin(self, *, catch_up: bool) -> None:
        """Close what a killed owner has left, and run at once if a run is owed."""
        assert self._deployment is not None
        for run in self._client.read_flow_runs(
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(LEFT)))),
            deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[self._deployment])),
        ):
            self._client.set_flow_run_state(run.id, Crashed(message="its schedule was killed"), force=True)
        chosen, missed = due(self._late())
        self._skip([run for run in [*missed, chosen] if run is not None and run.auto_scheduled])
        if (reason := self._record.owed(datetime.now(UTC))) and catch_up:
            terminal.say(f"{reason}; running once now")
            self._client.create_flow_run_from_deployment(self._deployment, state=Scheduled(), name="catch-up")
        else:
            self._record.passed(datetime.now(UTC))

    def loop(self, claim: Claim) -> None:
        """Start the runs that are due, for ever.

        Raises:
            ReplacedError: another process has taken the schedule over.
        """
        while True:
            self._server.ensure()
            try:
                claim.renew()
                if self._active is None:
                    self._start()
                else:
                    self._follow(self._active)
                if self._trouble:
                    terminal.say("the Prefect server answers again")
                    self._trouble = ""
            except FAILURES as error:
                # The run in progress goes on: Prefect's client in it repeats its requests for a minute.
                if not self._trouble:
                    self._trouble = str(error) or type(error).__name__
                    terminal.say(f"the Prefect server does not answer ({self._trouble}); trying again")
            if self._active is None:
                time.sleep(POLL_S)
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._active.process.wait(POLL_S)

    def stop(self) -> None:
        """End the processes of the run in progress; the next run goes on where it was."""
        if self._active is not None:
            terminal.say("ending the run in progress; the next run goes on where it was")
            end(descendants(self._active.process.pid), grace_s=STOP_S)
            self._active.process.wait()

    def close(self) -> None:
        """Record the end of the run that `stop` has ended."""
        if self._active is not None:
            state: State[Any] = Cancelled(message="the schedule was stopped; the next run goes on where it was")
            self._set_state(self._active.run, state)

    def pause(self) -> None:
        """Pause the deployment."""
        if self._deployment is not None:
            self._client.pause_deployment(self._deployment)

    def _late(self) -> list[Any]:
        """The runs whose time has come."""
        assert self._deployment is not None
        return self._client.get_scheduled_flow_runs_for_deployments(
            [self._deployment], scheduled_before=datetime.now(UTC)
        )

    def _skip(self, runs: Sequence[Any]) -> None:
        state: State[Any] = Cancelled(name=MISSED, message=MISSED_MESSAGE)
        for run in runs:
            self._set_state(run.id, state)

    def _set_state(self, run: UUID, state: State[Any]) -> None:
        """Set the state of a run, unless a person has deleted it."""
        with contextlib.suppress(ObjectNotFound):
            self._client.set_flow_run_state(run, state, force=True)

    def _start(self) -> None:
        """Start the run that is due, if any."""
        skipped = 0
        while True:
            run, missed = due(self._late())
            if not missed:
                break
            # The server returns a limited number at a time.
            self._skip(missed)
            skipped += len(missed)
        if run is None:
            return
        if skipped:
            terminal.say(f"{skipped} earlier times have passed; one run does for all")
        accepted: State[Any] | None = self._client.set_flow_run_state(run.id, Pending()).state
        if accepted is None or accepted.type != StateType.PENDING:
            return
        self._record.started(datetime.now(UTC))
        variables = {
            **environment(self._root),
            "PREFECT__FLOW_RUN_ID": str(run.id),
            "PREFECT__FLOW_ENTRYPOINT": f"{self._flow.fn.__module__}.{self._flow.fn.__name__}",
        }
        # A killed schedule takes its run with it, which ends its stage.
        command = tied([sys.executable, "-m", "prefect.engine"], number=signal.SIGTERM)
        process = subprocess.Popen(
            command, cwd=self._root, env=variables, stdin=subprocess.DEVNULL, start_new_session=True
        )
        self._active = Active(run=run.id, process=process)

    def _follow(self, active: Active) -> None:
        """Notice the end of the run, or that a person has cancelled it. A run that a person has deleted goes on."""
        state: State[Any] | None = None
        with contextlib.suppress(ObjectNotFound):
            state = self._client.read_flow_run(active.run).state
        code = active.process.poll()
        if code is None:
            if state is not None and state.type in (StateType.CANCELLING, StateType.CANCELLED):
                active.cancelled = True
                end(descendants(active.process.pid))
            return
        end(descendants(active.process.pid))
        if active.cancelled:
            self._set_state(active.run, Cancelled())
        elif state is None or not state.is_final():
            message = f"its process ended with exit code {code}"
            self._set_state(active.run, Crashed(message=message))
        self._record.finished()
        self._active = None
