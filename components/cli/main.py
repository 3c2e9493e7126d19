"""The subcommands of `headstart` by purpose."""

from typing import Final

import typer

from components.cli import encoders, labelling, prediction, project, runs
from components.cli.entry import main as main

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
