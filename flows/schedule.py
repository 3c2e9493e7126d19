"""Retrain on a schedule: a Prefect deployment, and the process that serves it. A run that is due while another one is
running waits for it. With `--sync` each run pulls code and data first. A schedule has one owner, which holds
`.headstart/schedules/NAME.lock`."""

import os
import re
import signal
import socket
import time
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
import tzlocal

from components.cli.common import PARAMS, ParamsFile, flags
from components.core.errors import ConfigError
from flows import notify
from flows.flow_run import Times
from flows.repository import STATE, find_root, read_locked, try_lock, write_locked
from flows.server import server
from flows.terminal import terminal

NAME = "scheduled"
#: Time limit in seconds for the end of a replaced owner.
REPLACE_S = 20.0


@contextmanager
def owned(root: Path, *, name: str, what: str, replace: bool) -> Iterator[None]:
    """Own a schedule of a repository within the block; `replace`: end the present owner first.

    Raises:
        ConfigError: another process owns it, or the name is invalid.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,59}", name):
        raise ConfigError(f"--name {name!r}: must consist of lower-case letters, digits and dashes, such as nightly")
    path = root / STATE / "schedules" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        if not try_lock(file):
            _replace(file, name=name, replace=replace)
        since = time.strftime("%Y-%m-%d %H:%M:%S %Z")
        write_locked(file, what=what, pid=os.getpid(), host=socket.gethostname(), since=since)
        try:
            yield
        finally:
            file.truncate(0)


def _replace(file: TextIO, *, name: str, replace: bool) -> None:
    """End the owner of a schedule, which holds the lock."""
    owner: dict[str, Any] = {"what": "unknown", "pid": 0, "host": "", "since": ""} | read_locked(file)
    described = "{what}: process {pid} on {host} since {since}".format(**owner)
    if not replace:
        raise ConfigError(
            f"--name {name}: already run by another process ({described}); stop it, choose another --name, or take "
            "over with --replace"
        )
    if owner["host"] != socket.gethostname():
        raise ConfigError(f"--name {name}: --replace cannot end its owner ({described}); end it there")
    terminal.say(f"ending the present owner of {name} ({described})")
    deadline, number = time.monotonic() + REPLACE_S, int(signal.SIGTERM)
    while not try_lock(file):
        if owner["pid"] and number:  # 0 is this process and its group
            with suppress(ProcessLookupError):
                os.kill(owner["pid"], number)
        number = signal.SIGKILL if time.monotonic() > deadline else 0
        time.sleep(0.1)


@dataclass(frozen=True)
class Flags:
    """Flags of `headstart schedule`."""

    cron: Annotated[str, typer.Option(help="Cron expression: minute hour day month weekday.")] = "0 3 * * *"
    every: Annotated[float, typer.Option(help="Interval in seconds, instead of a cron expression.")] = 0
    timezone: Annotated[str, typer.Option(help="Time zone of the cron expression; this machine's by default.")] = ""
    name: Annotated[str, typer.Option(help="Name of the schedule; others may be served beside it.")] = NAME
    synchronise: Annotated[
        bool, typer.Option("--sync", help="Pull code and data before each run; push and commit its result.")
    ] = False
    replace: Annotated[bool, typer.Option("--replace", help="End the process that serves this name first.")] = False
    catch_up: Annotated[
        bool, typer.Option(help="Run at once, one time, if a time was missed or the last run did not end.")
    ] = True
    notify: Annotated[
        bool, typer.Option("--notify", help="Only create the notifications of failed and late runs, and end.")
    ] = False
    test: Annotated[bool, typer.Option("--test", help="With --notify: send a trial message to every receiver.")] = False
    port: Annotated[int, typer.Option(help="Port of the Prefect server, if it does not run yet.")] = 0
    params: ParamsFile = PARAMS


def schedule(times: Times, options: Flags) -> None:
    """Serve the deployment `retrain/NAME` or `sync/NAME` until SIGTERM or Ctrl-C, which pause it.

    Raises:
        ConfigError: the file does not exist, the name is invalid, the port is in use, or another process serves the
            name.
        TransientError: the Prefect server does not answer.
    """
    params, name = options.params, options.name
    file = params.resolve()
    if not file.is_file():
        raise ConfigError(f"{params}: does not exist; name the settings file with --params")
    root = find_root(file.parent)
    what = f"{'sync' if options.synchronise else 'retrain'} {params}, {times}"
    with owned(root, name=name, what=what, replace=options.replace), server(port=options.port) as running:
        # Prefect reads the address of its server on import.
        from flows.serving import Schedule, serve

        suffix = running.suffix(root)
        if receivers := notify.install(running.address, suffix=suffix):
            terminal.say(f"failed and late runs are told by {' and '.join(receivers)}")
        terminal.say(f"{name}: {what}")
        owner = f"{root} on {socket.gethostname()}"
        shared = f"{name}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', root.name)}{suffix}" if suffix else name
        served = Schedule(shared, str(file), options.synchronise, owner, times)
        serve(served, root=root, replace=options.replace, catch_up=options.catch_up)


def checked(cron: str) -> str:
    """A valid cron expression.

    Raises:
        ConfigError: the expression is invalid.
    """
    from prefect.client.schemas.schedules import CronSchedule

    try:
        return CronSchedule(cron=cron).cron
    except ValueError:
        raise ConfigError(f"--cron {cron!r}: must be minute hour day month weekday, such as '0 3 * * *'") from None


def checked_timezone(name: str) -> str:
    """A valid name of a time zone; this machine's time zone if `name` is empty.

    Raises:
        ConfigError: there is no such time zone.
    """
    zone = name or tzlocal.get_localzone_name() or "UTC"
    try:
        return zoneinfo.ZoneInfo(zone).key
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        raise ConfigError(f"--timezone {zone!r}: unknown; use a name such as Europe/Berlin or Asia/Bangkok") from None


@flags
def command(options: Flags) -> None:
    """Retrain on a schedule until stopped."""
    if options.notify:
        notify.create(options.params.resolve().parent, test=options.test, port=options.port)
        return
    times = Times(
        options.cron if options.every else checked(options.cron), checked_timezone(options.timezone), options.every
    )
    schedule(times, options)
