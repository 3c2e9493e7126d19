"""A flow as a program: its flags, its signals, its exit code, its one error message."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from components.errors import ConfigError, HeadstartError
from flows.processes import mark
from flows.repository import find_root

ParamsFile = Annotated[Path, typer.Option("--params", help="The file of settings; a row of experiments/ has its own.")]
PARAMS = Path("params.yaml")


def main(function: Callable[..., Any]) -> None:
    """Run `function` with the flags of its signature.

    SIGTERM and SIGHUP end it as Ctrl-C does: the stage's processes and Prefect's embedded server end first. (Their
    default would end only this process and leave both running.) What its user has to put right is one message and exit
    code 2.
    """
    with contextlib.suppress(ConfigError):
        # For Prefect's embedded server, which this process starts: the next run ends it if this one is killed outright.
        os.environ.update(mark(find_root(Path())))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(function)
    try:
        app()
    except HeadstartError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
