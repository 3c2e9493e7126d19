"""The command `headstart`: its subcommands in the order of its help, and how it ends.

A `HeadstartError` is printed as one message with exit code 2; a traceback indicates a bug in Headstart.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import typer

from components.commands import encoders, flows, labelling, prediction, project, registry, runs
from components.errors import HeadstartError, disk_full, missing_module, report
from components.training import threads

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Transfer learning for text."
)
#: Modules of subcommands, in the order of the help.
MODULES: Final = (project, runs, encoders, labelling, prediction, registry, flows)
for _module in MODULES:
    app.add_typer(_module.app)


def main() -> None:
    """Entry point of the command `headstart`."""
    threads.prepare()
    try:
        app()
    except HeadstartError as error:
        report(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; the rest of the output is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if (known := disk_full(error) or missing_module(error)) is None:
            raise
        report(known)
        sys.exit(known.exit_code)


if __name__ == "__main__":
    main()
