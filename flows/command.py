"""A subcommand that runs a flow, as a program: `python -m flows.command VERB ...`. Command-line flags, signals, exit
code, error message."""

import contextlib
import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from components.cli.programs import program_of
from components.core import threads
from components.core.environment import protect
from components.core.errors import ConfigError, HeadstartError, TransientError, of_machine
from flows.processes import mark
from flows.repository import find_root
from flows.terminal import BudgetError, StageError, terminal

#: Exit code after Ctrl-C.
INTERRUPTED = 130


def main() -> None:
    """Run the function `command` of the module of a subcommand, with the flags of its signature. SIGTERM and SIGHUP act
    like Ctrl-C, at which the module's `INTERRUPTED` is printed: the processes of the stage end before this process. A
    `HeadstartError` is one message and exit code 2."""
    verb, *given = sys.argv[1:]
    module = importlib.import_module(f"flows.{program_of(verb)}")
    function: Callable[..., Any] = module.command

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except KeyboardInterrupt:
            terminal.say(getattr(module, "INTERRUPTED", "interrupted"), important=True)
            sys.exit(INTERRUPTED)

    threads.prepare()
    protect()
    with contextlib.suppress(ConfigError):
        # Marks the children of this process: the next run ends them if this process is killed.
        os.environ.update(mark(find_root(Path())))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(run)
    try:
        app(given, prog_name=f"headstart {verb}")
    except BudgetError as error:
        # The message was printed when the run was refused or stopped.
        sys.exit(error.exit_code)
    except StageError as error:
        # The message was printed when the command failed.
        sys.exit(2 if error.final else TransientError.exit_code)
    except HeadstartError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if (message := of_machine(error)) is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        sys.exit(message.exit_code)


if __name__ == "__main__":
    main()
