"""Retrain by the clock: a Prefect deployment, and what serves it.

A scheduled run is a run like any other: it compares the data, does again what has changed, leaves alone the rest. If
one is still busy when the next is due, the next waits.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from components.errors import ConfigError
from flows.command import PARAMS, ParamsFile, main
from flows.processes import end_session
from flows.repository import STATE, environment, find_root
from flows.terminal import terminal

HOST = "127.0.0.1"
PORT = 4200
START_S = 300.0


def schedule(*, cron: str, every: float = 0, port: int = PORT, params: Path = PARAMS) -> None:
    """Serve the deployment `retrain/scheduled` until SIGTERM or Ctrl-C, which pause it.

    Args:
        cron: when to run: minute, hour, day, month, weekday.
        every: seconds between two runs, instead of `cron`, if not 0.
        port: of the Prefect server that is started if `PREFECT_API_URL` names none.
        params: the file of settings.

    Raises:
        ConfigError: no such file, no cron line, the port is taken by something else.
    """
    file = params.resolve()
    if not file.is_file():
        raise ConfigError(f"{params}: does not exist; name the file of settings with --params")
    root = find_root(file.parent)
    with server(port=port, root=root):
        # Prefect reads where its server is when it is imported.
        from flows.serving import serve

        when: dict[str, Any] = {"interval": every} if every else {"cron": checked(cron)}
        terminal.say(f"retrain {params}: " + (f"every {every:g} s" if every else f"cron {cron}"))
        serve(params=file, when=when)
    terminal.say("ended; the schedule is paused until it is served again")


def checked(cron: str) -> str:
    """The cron line, if it is one.

    Raises:
        ConfigError: it is not.
    """
    from prefect.client.schemas.schedules import CronSchedule

    try:
        return CronSchedule(cron=cron).cron
    except ValueError:
        raise ConfigError(f"--cron {cron!r}: must be minute hour day month weekday, as in '0 3 * * *'") from None


@contextmanager
def server(*, port: int, root: Path) -> Iterator[str]:
    """The address of a Prefect server: the one that `PREFECT_API_URL` names, one that answers at `port`, or a new one
    that ends with the block.

    Raises:
        ConfigError: the port is taken by something else, or the server does not come up.
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
    if taken(port):
        raise ConfigError(f"port {port} is taken by another program; choose another one with --port")
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
                raise ConfigError(f"the Prefect server did not come up; see {log}")
            time.sleep(0.2)
        yield address
    finally:
        end_session(process.pid)
        process.poll()


def answers(address: str) -> bool:
    """Whether a Prefect server answers there."""
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return answer.read().strip() == b"true"
    except (urllib.error.URLError, OSError, ValueError):
        return False


def taken(port: int) -> bool:
    """Whether something listens at the port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def command(
    *,
    cron: Annotated[str, typer.Option(help="When to retrain: minute hour day month weekday.")] = "0 3 * * *",
    every: Annotated[float, typer.Option(help="Seconds between two runs, instead of a cron line.")] = 0,
    port: Annotated[int, typer.Option(help="Of the Prefect server that starts if PREFECT_API_URL names none.")] = PORT,
    params: ParamsFile = PARAMS,
) -> None:
    """Retrain by the clock: start what serves it, and stay until ended."""
    schedule(cron=cron, every=every, port=port, params=params)


if __name__ == "__main__":
    main(command)
