"""The command `headstart`, and how it ends: a `HeadstartError` is printed as one message with its exit code; a
traceback indicates a bug in Headstart."""

import importlib
import os
import sys
from importlib.util import find_spec

from components.cli.programs import FLOWS
from components.core import threads
from components.core.environment import protect
from components.core.errors import ConfigError, HeadstartError, of_machine, report


def main() -> None:
    """Entry point of the command `headstart`."""
    try:
        if find_spec("fcntl") is None:
            raise ConfigError("Headstart needs Linux or macOS; on Windows, install and run it in WSL: wsl --install")
        threads.prepare()
        protect()
        _run(*sys.argv[1:])
    except HeadstartError as error:
        report(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; the rest of the output is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if _changes(*sys.argv[1:2]):
            sys.exit(os.EX_IOERR)  # it has not done what it was asked for
    except Exception as error:
        if (message := of_machine(error)) is None:
            raise
        report(message)
        sys.exit(message.exit_code)


def _changes(verb: str = "") -> bool:
    """Whether a subcommand is a flow that changes something, rather than one whose output is all that it does."""
    return verb in FLOWS and verb != "plan"


def _run(verb: str = "", *arguments: str) -> None:
    """Run a subcommand; one of `flows` without the imports of all subcommands."""
    # `why --document` reads files only. Without a package the command says what is missing.
    is_flow = verb in FLOWS or (verb == "why" and not any(each.startswith("--document") for each in arguments))
    if is_flow and find_spec("prefect") is not None:
        importlib.import_module("flows.command").run(verb, arguments)
    else:
        importlib.import_module("components.cli.main").app()
