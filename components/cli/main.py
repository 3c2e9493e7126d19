"""The command `headstart`: its subcommands by purpose, and how it ends.

A `HeadstartError` is printed as one message with exit code 2; a traceback indicates a bug in Headstart.
"""

import os
import sys
from importlib.util import find_spec
from typing import Final

import typer

from components.cli import encoders, labelling, prediction, project, runs
from components.core import threads
from components.core.environment import protect
from components.core.errors import ConfigError, HeadstartError, of_machine, report

#: Panel of the help -> its commands.
PANELS: Final = {
    "start": "init fit check data",
    "run": "retrain sync schedule plan why stage dvc",
    "look": "ui champion trace study try",
    "label": "suggest label label-quality forget",
    "serve": "predict serve drift",
    "registry": "promote rollback export import starts",
    "operate": "gc",
}

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Transfer learning for text."
)
_commands = {
    command.name or getattr(command.callback, "__name__", ""): command
    for module in (project, runs, encoders, labelling, prediction)
    for command in module.app.registered_commands
}
for _panel, _names in PANELS.items():
    for _name in _names.split():
        _commands[_name].rich_help_panel = _panel
        app.registered_commands.append(_commands.pop(_name))
# Not of a user's own project: shown by docs/studies.md.
_commands["lectures"].hidden = True
app.registered_commands.append(_commands.pop("lectures"))
assert not _commands, _commands


def main() -> None:
    """Entry point of the command `headstart`."""
    try:
        if find_spec("fcntl") is None:
            raise ConfigError("Headstart needs Linux or macOS; on Windows, install and run it in WSL: wsl --install")
        threads.prepare()
        protect()
        app()
    except HeadstartError as error:
        report(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; the rest of the output is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if (message := of_machine(error)) is None:
            raise
        report(message)
        sys.exit(message.exit_code)
