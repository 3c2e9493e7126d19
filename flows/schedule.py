"""Retrain on a schedule: a Prefect deployment and the process that serves it.

A scheduled run is an ordinary run: it executes the stages that are not up to date. A run that is due while another one
is running waits for it. With `--sync` each run pulls code and data first (`flows.sync`). Schedules with different names
are served side by side; each has one owner (`flows.owner`), and they share a Prefect server (`flows.server`).
"""

from __future__ import annotations

import zoneinfo
from pathlib import Path
from typing import Annotated

import typer
import tzlocal

from components.commands.common import PARAMS, ParamsFile
from components.errors import ConfigError, TransientError
from components.settings.loading import load_params
from flows import notify
from flows.command import main
from flows.missed import Record, Times
from flows.owner import Owner, checked_name, lock_path, owned
from flows.repository import find_root
from flows.server import PORT, server
from flows.terminal import terminal

NAME = "scheduled"


def schedule(
    *,
    cron: str,
    every: float = 0,
    timezone: str = "",
    name: str = NAME,
    synchronise: bool = False,
    replace: bool = False,
    catch_up: bool = True,
    port: int = PORT,
    params: Path = PARAMS,
) -> None:
    """Serve the deployment `retrain/NAME` until SIGTERM or Ctrl-C, which pause it.

    Args:
        cron: cron expression: minute, hour, day, month, weekday.
        every: interval in seconds; 0: use `cron`.
        timezone: of the cron expression, such as Asia/Bangkok; empty: that of this machine.
        name: of the schedule.
        synchronise: whether each run pulls code and data first, and pushes and commits its result.
        replace: whether to take the name over from the process that serves it.
        catch_up: whether to run at once if a time has passed since the last run, or if the last run did not end.
        port: of the repository's Prefect server, unless it runs already or `PREFECT_API_URL` names another.
        params: the settings file.

    Raises:
        ConfigError: the file does not exist, the cron expression, time zone or name is invalid, the port is in use, or
            another process serves the name.
    """
    file = params.resolve()
    if not file.is_file():
        raise ConfigError(f"{params}: does not exist; name the settings file with --params")
    root = find_root(file.parent)
    times = Times(cron=cron if every else checked(cron), timezone=checked_timezone(timezone), every=every)
    checked_name(name)
    what = f"{'sync' if synchronise else 'retrain'} {params}, {times}"
    owner = Owner.this(root=root, what=what)
    with (
        owned(root, name=name, owner=owner, replace=replace, say=terminal.say),
        server(port=port, root=root) as running,
    ):
        # Prefect reads the address of its server on import.
        from flows.serving import FAILURES, serve

        try:
            told = notify.install(load_params(file).notify, address=running.address)
        except FAILURES as error:
            raise TransientError(f"{running.address}: the Prefect server does not answer ({error})") from error
        if told:
            terminal.say(f"failed and late runs are told by {' and '.join(told)}")
        terminal.say(f"{name}: {what}")
        serve(
            name=name,
            params=file,
            root=root,
            times=times,
            server=running,
            owner=owner,
            record=Record(lock_path(root, name).with_suffix(".json"), times),
            synchronise=synchronise,
            replace=replace,
            catch_up=catch_up,
        )


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


def command(
    *,
    cron: Annotated[str, typer.Option(help="Cron expression: minute hour day month weekday.")] = "0 3 * * *",
    every: Annotated[float, typer.Option(help="Interval in seconds, instead of a cron expression.")] = 0,
    timezone: Annotated[str, typer.Option(help="Time zone of the cron expression; this machine's by default.")] = "",
    name: Annotated[str, typer.Option(help="Name of the schedule; others may be served beside it.")] = NAME,
    synchronise: Annotated[
        bool, typer.Option("--sync", help="Pull code and data before each run; push and commit its result.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="End the process that serves this name first.")] = False,
    catch_up: Annotated[
        bool, typer.Option(help="Run at once, one time, if a time was missed or the last run did not end.")
    ] = True,
    port: Annotated[int, typer.Option(help="Port of the Prefect server that is started.")] = PORT,
    params: ParamsFile = PARAMS,
) -> None:
    """Retrain on a schedule until stopped."""
    schedule(
        cron=cron,
        every=every,
        timezone=timezone,
        name=name,
        synchronise=synchronise,
        replace=replace,
        catch_up=catch_up,
        port=port,
        params=params,
    )


if __name__ == "__main__":
    main(command)
