"""A deployment on Prefect's server, and Prefect's runner (`python -m flows.serving`), which `serve` watches: it starts
server and runner again when they end, and a run if the last one did not end or a time was missed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateName,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments.runner import EntrypointType, RunnerDeployment
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.runner import Runner
from prefect.states import Cancelled, Crashed, Scheduled

from components.core.errors import ConfigError
from flows.flow_run import MISSED, RUNNER, STOPPED, Times
from flows.processes import descendants, end, start
from flows.repository import environment
from flows.retrain import retrain
from flows.server import POLL_S, ensure
from flows.sync import sync
from flows.terminal import terminal

#: Seconds between two starts of the runner, and between two looks at who owns the deployment.
RESTART_S = 5.0
LOOK_S = 10.0
#: At the end of a schedule: seconds that the server has to record it, and that the run in progress has to end by
#: itself. Together with the times of `flows.server` they are less than 10.
ANSWER_S = 3.0
STOP_S = 3.5
#: Errors of a server that does not answer, or not sensibly.
FAILURES = (httpx.HTTPError, PrefectException)


@dataclass(frozen=True)
class Schedule:
    """A schedule: its name, the absolute path of the settings, whether runs synchronise, who serves it, and when runs
    are due."""

    name: str
    params: str
    synchronise: bool
    owner: str
    times: Times

    def flow(self, *, other: bool = False) -> Flow[..., Any]:
        """The flow of the deployment, or the one that it could have instead."""
        return cast("Flow[..., Any]", sync if self.synchronise != other else retrain)

    def deployment(self) -> RunnerDeployment:
        made = self.flow().to_deployment(
            name=self.name,
            description=self.owner,
            parameters={"params": self.params},
            paused=False,
            entrypoint_type=EntrypointType.MODULE_PATH,
            **self.times.prefect(),
        )
        return cast("RunnerDeployment", made)


class Stopped(BaseException):
    """SIGTERM, SIGHUP or Ctrl-C; not an error."""


class Replaced(BaseException):
    """Another repository or host has taken over the name; its text says which."""


def serve(schedule: Schedule, *, root: Path, replace: bool = False, catch_up: bool = True) -> None:
    """Create the deployment `retrain/NAME`, or `sync/NAME`, and run Prefect's runner until SIGTERM or Ctrl-C.

    Raises:
        ConfigError: another repository or host serves the name on this server, or a work pool does.
    """
    with get_client(sync_client=True) as client:
        _raise_stopped()
        deployment: UUID | None = None
        runner: subprocess.Popen[bytes] | None = None
        began, looked = -RESTART_S, time.monotonic()
        try:
            deployment = create(client, schedule, replace=replace)
            begin(client, deployment, schedule.times, catch_up=catch_up)
            while True:
                ensure()
                if (runner is None or runner.poll() is not None) and time.monotonic() - began > RESTART_S:
                    if runner is not None:
                        terminal.say("Prefect's runner has ended and is started again")
                    runner, began = _start_runner(schedule, root=root), time.monotonic()
                if time.monotonic() - looked > LOOK_S:
                    looked = time.monotonic()
                    _refuse_other(client, deployment, schedule)
                time.sleep(POLL_S)
        except Replaced as other:  # the deployment belongs to it, so it is not paused
            _end_runner(runner)
            terminal.say(f"ended; --name {schedule.name} is now served by {other}")
        except Stopped:
            if deployment is not None:
                # What the server is not told now, the next start tells it.
                closing = threading.Thread(target=close, args=(client, deployment), daemon=True)
                closing.start()
                closing.join(ANSWER_S)
            _end_runner(runner)
            terminal.say("ended; the schedule is paused until it is served again")


def _refuse_other(client: SyncPrefectClient, deployment: UUID, schedule: Schedule) -> None:
    with suppress(*FAILURES):
        owner = client.read_deployment(deployment).description
        if owner and owner != schedule.owner:
            raise Replaced(owner)


def _end_runner(runner: subprocess.Popen[bytes] | None) -> None:
    if runner is not None:
        end(descendants(runner.pid), grace_s=STOP_S)
        runner.wait()


def _raise_stopped() -> None:
    """Let SIGTERM, SIGHUP and Ctrl-C raise `Stopped`, once; further ones do not disturb the end."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

    def stop(number: int, _: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    for number in numbers:
        signal.signal(number, stop)


def _start_runner(schedule: Schedule, *, root: Path) -> subprocess.Popen[bytes]:
    quiet = ("-W", "ignore::RuntimeWarning")  # of Prefect's own handler of SIGTERM
    command = [sys.executable, *quiet, "-m", "flows.serving", json.dumps(asdict(schedule))]
    # A killed schedule takes the runner with it, which takes the run.
    return start(command, directory=root, environment=environment(root), number=signal.SIGTERM)


def create(client: SyncPrefectClient, schedule: Schedule, *, replace: bool) -> UUID:
    """Create or change the deployment, and pause the one of the other flow with the same name.

    Raises:
        ConfigError: another repository or host serves the name on this server, or a work pool does.
    """
    present, other = (_read(client, f"{schedule.flow(other=way).name}/{schedule.name}") for way in (False, True))
    if present is not None and present.work_pool_name:
        raise ConfigError(
            f"--name {schedule.name}: the work pool {present.work_pool_name} serves it; choose another --name"
        )
    for before in (present, other):
        served = before is not None and not before.work_pool_name and not before.paused
        if served and (before.description or schedule.owner) != schedule.owner and not replace:
            raise ConfigError(
                f"--name {schedule.name}: already run on this Prefect server ({before.description}); stop it, choose "
                "another --name, or take over with --replace"
            )
    for before in (present, other):
        if before is not None and not before.work_pool_name:
            client.pause_deployment(before.id)  # which deletes the runs that it has planned
    return cast("UUID", schedule.deployment().apply())


def _read(client: SyncPrefectClient, name: str) -> Any:
    with suppress(ObjectNotFound):
        return client.read_deployment_by_name(name)
    return None


def begin(client: SyncPrefectClient, deployment: UUID, times: Times, *, catch_up: bool) -> None:
    """Mark the runs that a killed schedule has left, and run at once if a run is owed: the last one did not end, or a
    time has passed since."""
    now, reason = datetime.now(UTC), ""
    runs = _runs(client, deployment)
    for run in _in_progress(runs):
        _set_state(client, run.id, Crashed(name=STOPPED, message="its schedule was killed"))
        reason = "the last run did not end"
    started = [(run.start_time or run.expected_start_time or now, run.state_name or "") for run in runs]
    last, state = max(started, default=(now, ""))
    if state == STOPPED:
        reason = "the last run did not end"
    elif not reason and (time_ := times.first(after=last, until=now)):
        reason = f"the run of {time_.astimezone():%Y-%m-%d %H:%M:%S %Z} was missed"
    if reason and catch_up:
        terminal.say(f"{reason}; running once now")
        client.create_flow_run_from_deployment(deployment, state=Scheduled(), name="catch-up")


def close(client: SyncPrefectClient, deployment: UUID) -> None:
    """Pause the deployment, and mark the run in progress, which is about to be ended. Failures are ignored."""
    with suppress(*FAILURES):
        client.pause_deployment(deployment)
        for run in _in_progress(_runs(client, deployment)):
            message = "the schedule was stopped; the next run goes on where it was"
            _set_state(client, run.id, Cancelled(name=STOPPED, message=message))


def _runs(client: SyncPrefectClient, deployment: UUID) -> list[FlowRun]:
    # Runs that have begun, without those that were missed.
    return client.read_flow_runs(
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment])),
        flow_run_filter=FlowRunFilter(
            state=FlowRunFilterState(
                type=FlowRunFilterStateType(not_any_=[StateType.SCHEDULED]),
                name=FlowRunFilterStateName(not_any_=[MISSED]),
            )
        ),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
    )


def _in_progress(runs: list[FlowRun]) -> list[FlowRun]:
    return [run for run in runs if run.state_type in (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)]


def _set_state(client: SyncPrefectClient, run: UUID, state: State[Any]) -> None:
    with suppress(ObjectNotFound):  # a person has deleted it
        client.set_flow_run_state(run, state, force=True)


def main() -> None:
    """Prefect's runner of the schedule in the argument, one run at a time."""
    given = json.loads(sys.argv[1])
    schedule = Schedule(**given | {"times": Times(**given["times"])})
    os.environ[RUNNER] = str(os.getpid())
    runner = Runner(name=schedule.name, limit=1, pause_on_shutdown=False)
    runner.add_deployment(schedule.deployment())
    asyncio.run(runner.start())


if __name__ == "__main__":
    main()
