"""Retrain on a schedule: a Prefect deployment that this process serves (`Flow.serve`), one run at a time. Its name
has a digest of host and folder: other projects on the server have theirs. With `--sync` each run pulls code and data
first."""

import os
import re
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import typer
import tzlocal

from components.cli.common import PARAMS, ParamsFile, flags
from components.core.artifacts import digest_text, try_lock
from components.core.errors import ConfigError
from flows import notify
from flows.flow_run import KILLED, MISSED, RUNNER
from flows.repository import STATE, Project, read_locked, write_locked
from flows.server import ensured, server
from flows.terminal import terminal

#: Message with which Prefect's runner cancels its runs when it ends.
SHUTDOWN = "Runner is shutting down."


@dataclass(frozen=True)
class Flags:
    """Flags of `headstart schedule`."""

    cron: Annotated[str, typer.Option(help="Cron expression: minute hour day month weekday.")] = "0 3 * * *"
    every: Annotated[float, typer.Option(min=0, help="Interval in seconds, instead of a cron expression.")] = 0
    timezone: Annotated[str, typer.Option(help="Time zone of the cron expression; this machine's by default.")] = ""
    name: Annotated[str, typer.Option(help="Name of the schedule; others may be served beside it.")] = "scheduled"
    synchronise: Annotated[
        bool, typer.Option("--sync", help="Pull code and data before each run; push and commit its result.")
    ] = False
    notify: Annotated[
        bool, typer.Option("--notify", help="Only create the notifications of failed and late runs, and end.")
    ] = False
    test: Annotated[bool, typer.Option("--test", help="Like --notify, with a trial message to every receiver.")] = False
    port: Annotated[int, typer.Option(help="Port of the Prefect server, if it does not run yet.")] = 0
    params: ParamsFile = PARAMS


@flags
def command(options: Flags) -> None:
    """Retrain on a schedule until stopped."""
    file, name = options.params.resolve(), options.name
    if options.notify or options.test:
        notify.create(file.parent, test=options.test, port=options.port)
        return
    if not file.is_file():
        raise ConfigError(f"{options.params}: does not exist; name the settings file with --params")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,59}", name):
        raise ConfigError(f"--name {name!r}: must consist of lower-case letters, digits and dashes, such as nightly")
    root, times = Project(file).root, times_of(options)
    lock = root / STATE / "schedules" / f"{name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as held:
        if not try_lock(held):
            owner = "process {pid} since {since}".format(**{"pid": "?", "since": "?"} | read_locked(held))
            raise ConfigError(f"--name {name}: already served here ({owner}); stop it, or choose another --name")
        write_locked(held, pid=os.getpid(), since=time.strftime("%Y-%m-%d %H:%M:%S %Z"))
        with server(port=options.port) as running, ensured():
            if receivers := notify.install(running.address, suffix=running.suffix(root)):
                terminal.say(f"failed and late runs are told by {' and '.join(receivers)}")
            what = "sync" if options.synchronise else "retrain"
            terminal.say(
                f"{name}: {what} {options.params}, "
                + (f"every {options.every:g} s" if options.every else f"cron {options.cron}")
            )
            folder = re.sub(r"[^A-Za-z0-9_.-]+", "-", root.name)
            serve(
                what,
                f"{name}-{folder}-{digest_text(f'{socket.gethostname()}:{root}')[:6]}",
                {"params": str(file)},
                times,
            )
        terminal.say("ended; times that pass until it is served again are made up for by one run")


def times_of(options: Flags) -> dict[str, Any]:
    """When runs are due, as arguments of `Flow.serve`.

    Raises:
        ConfigError: the cron expression or the time zone is invalid.
    """
    from prefect.client.schemas.schedules import CronSchedule

    if options.every:
        return {"interval": options.every}
    zone = options.timezone or tzlocal.get_localzone_name() or "UTC"
    try:
        return {"schedules": [CronSchedule(cron=options.cron, timezone=zone)]}
    except ValueError:
        raise ConfigError(
            f"--cron {options.cron!r}, --timezone {zone!r}: must be minute hour day month weekday, such as "
            "'0 3 * * *', and a time zone, such as Europe/Berlin"
        ) from None


def serve(what: str, name: str, parameters: dict[str, Any], times: dict[str, Any]) -> None:
    """Serve the deployment `retrain/NAME` or `sync/NAME` until SIGTERM or Ctrl-C; first a run, if the last one was
    killed."""
    from prefect.deployments.runner import EntrypointType

    from flows.retrain import retrain
    from flows.sync import sync

    flow: Any = {"sync": sync, "retrain": retrain}[what]
    # A killed schedule takes its runs with it (`flow_run.begin_scheduled`).
    os.environ[RUNNER] = str(os.getpid())
    options: dict[str, Any] = {"parameters": parameters, "entrypoint_type": EntrypointType.MODULE_PATH, **times}
    pause("retrain" if what == "sync" else "sync", name)
    restart(flow.to_deployment(name=name, **options).apply())
    flow.serve(name=name, limit=1, pause_on_shutdown=False, print_starting_message=False, **options)


def pause(what: str, name: str) -> None:
    """Pause the deployment of a flow that a schedule of this name served before, so that no runs are planned that no
    process executes."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    with suppress(ObjectNotFound), get_client(sync_client=True) as client:
        client.pause_deployment(client.read_deployment_by_name(f"{what}/{name}").id)


def restart(deployment: Any) -> None:
    """Record that the runs in progress of a deployment were killed with its schedule, and plan a run if the last one
    did not end: it crashed, or Prefect's runner cancelled it at the end of its schedule. One that a person cancelled is
    not made up for."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    with get_client(sync_client=True) as client:
        # Those that have begun, without those that another run has done for.
        runs = client.read_flow_runs(
            deployment_filter=DeploymentFilter.model_validate({"id": {"any_": [deployment]}}),
            flow_run_filter=FlowRunFilter.model_validate(
                {"state": {"type": {"not_any_": [StateType.SCHEDULED]}, "name": {"not_any_": [MISSED]}}}
            ),
        )
        left = [run for run in runs if run.state_type in (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)]
        for run in left:
            client.set_flow_run_state(run.id, Crashed(message=KILLED), force=True)
        last = max((run for run in runs if run.start_time), key=lambda run: str(run.start_time), default=None)
        state = last.state if last is not None else None
        if left or (
            state is not None
            and (state.type == StateType.CRASHED or (state.type == StateType.CANCELLED and state.message == SHUTDOWN))
        ):
            terminal.say("the last run did not end; running once now")
            client.create_flow_run_from_deployment(deployment)
