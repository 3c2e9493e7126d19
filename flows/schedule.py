"""Retrain on a schedule: a Prefect deployment and the process that serves it.

A scheduled run is an ordinary run: it executes the stages that are not up to date. A run that is due while another one
is running waits for it. With `--sync` each run pulls code and data first (`flows.sync`).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import tzlocal

from components.errors import ConfigError
from flows.command import PARAMS, ParamsFile, main
from flows.processes import end_session
from flows.repository import STATE, environment, find_root
from flows.terminal import terminal

HOST = "127.0.0.1"
PORT = 4200
#: Time limit in seconds for the start of the server.
START_S = 300.0


def schedule(
    *,
    cron: str,
    every: float = 0,
    timezone: str = "",
    synchronise: bool = False,
    port: int = PORT,
    params: Path = PARAMS,
) -> None:
    """Serve the deployment `retrain/scheduled` until SIGTERM or Ctrl-C, which pause it.

    Args:
        cron: cron expression: minute, hour, day, month, weekday.
        every: interval in seconds; 0: use `cron`.
        timezone: of the cron expression, such as Asia/Bangkok; empty: that of this machine.
        synchronise: whether each run pulls code and data first, and pushes and commits its result.
        port: of the Prefect server that is started unless `PREFECT_API_URL` names one.
        params: the settings file.

    Raises:
        ConfigError: the file does not exist, the cron expression or time zone is invalid, or the port is in use.
    """
    file = params.resolve()
    if not file.is_file():
        raise ConfigError(f"{params}: does not exist; name the settings file with --params")
    root = find_root(file.parent)
    zone = checked_timezone(timezone)
    with server(port=port, root=root):
        # Prefect reads the address of its server on import.
        from flows.serving import serve

        when: dict[str, Any] = {"interval": every}
        if not every:
            from prefect.schedules import Cron

            when = {"schedule": Cron(checked(cron), timezone=zone)}
        what = "sync" if synchronise else "retrain"
        terminal.say(f"{what} {params}: " + (f"every {every:g} s" if every else f"cron {cron}, time zone {zone}"))
        serve(params=file, when=when, synchronise=synchronise)
    terminal.say("ended; the schedule is paused until it is served again")


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
    """A valid name of a time zone; that of this machine if `name` is empty.

    Raises:
        ConfigError: there is no such time zone.
    """
    found = name or tzlocal.get_localzone_name() or "UTC"
    try:
        return zoneinfo.ZoneInfo(found).key
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        raise ConfigError(f"--timezone {found!r}: unknown; use a name such as Europe/Berlin or Asia/Bangkok") from None


@contextmanager
def server(*, port: int, root: Path) -> Iterator[str]:
    """The address of a Prefect server: the one that `PREFECT_API_URL` names, one that listens at `port`, or a new one
    that ends with the block.

    Raises:
        ConfigError: the port is used by another program, or the server does not start.
    """
    if address := os.environ.get("PREFECT_API_URL"):
        yield address
        return
    address = f"http://{HOST}:{port}/api"
    os.environ["PREFECT_API_URL"] = address
    if answers(address):
        terminal.say(f"using the Prefect server at {address}")
        yield address
        return
    if in_use(port):
        raise ConfigError(f"port {port} is used by another program; choose another one with --port")
    log = root / STATE / "prefect-server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=root, env=environment(root), stdout=output, stderr=output, start_new_session=True
        )
    try:
        terminal.say(f"starting a Prefect server at {address.removesuffix('/api')}")
        deadline = time.monotonic() + START_S
        while not answers(address):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ConfigError(f"the Prefect server did not start; see {log}")
            time.sleep(0.2)
        yield address
    finally:
        end_session(process.pid)
        process.poll()


def answers(address: str) -> bool:
    """Whether a Prefect server answers at the address."""
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return answer.read().strip() == b"true"
    except (urllib.error.URLError, OSError, ValueError):
        return False


def in_use(port: int) -> bool:
    """Whether a program listens at the port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def command(
    *,
    cron: Annotated[str, typer.Option(help="Cron expression: minute hour day month weekday.")] = "0 3 * * *",
    every: Annotated[float, typer.Option(help="Interval in seconds, instead of a cron expression.")] = 0,
    timezone: Annotated[str, typer.Option(help="Time zone of the cron expression; this machine's by default.")] = "",
    synchronise: Annotated[
        bool, typer.Option("--sync", help="Pull code and data before each run; push and commit its result.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the Prefect server that is started.")] = PORT,
    params: ParamsFile = PARAMS,
) -> None:
    """Retrain on a schedule until stopped."""
    schedule(cron=cron, every=every, timezone=timezone, synchronise=synchronise, port=port, params=params)


if __name__ == "__main__":
    main(command)
