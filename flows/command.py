"""A subcommand that runs a flow: command-line flags and signals."""

import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from components.cli.programs import PROGRAMS
from components.core.errors import ConfigError
from flows.processes import mark
from flows.repository import find_root
from flows.terminal import terminal

#: Exit code after Ctrl-C.
INTERRUPTED = 130


def run(verb: str, arguments: Sequence[str]) -> None:
    """Run the function `command` of the module of a subcommand, with the flags of its signature. SIGTERM and SIGHUP act
    like Ctrl-C, at which the module's `INTERRUPTED` is printed: the processes of the stage end before this process."""
    module = importlib.import_module(f"flows.{PROGRAMS.get(verb, verb)}")
    function: Callable[..., Any] = module.command

    @functools.wraps(function)
    def command(*given: Any, **options: Any) -> Any:
        try:
            return function(*given, **options)
        except KeyboardInterrupt:
            terminal.say(getattr(module, "INTERRUPTED", "interrupted"), important=True)
            sys.exit(INTERRUPTED)

    with suppress(ConfigError):
        # Marks the children of this process: the next run ends them if this process is killed.
        os.environ.update(mark(find_root(Path())))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    app([*arguments], prog_name=f"headstart {verb}")
