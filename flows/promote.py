"""Register and promote the models of the last run without training, after a change of the rule or of the registry."""

import os
from typing import Annotated

import typer

from components.cli.common import PARAMS, ParamsFile
from components.core.errors import ConfigError
from flows.repository import Project
from flows.server import server
from flows.terminal import terminal


def command(
    *,
    version: Annotated[str, typer.Option(help="Version that becomes the champion at once, without comparison.")] = "",
    reason: Annotated[str, typer.Option(help="Why; recorded in the ledger. Required with --version.")] = "",
    task: Annotated[str, typer.Option(help="Task of --version; the first of run.tasks by default.")] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Accept a --version that has learned from removed documents.")
    ] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Register the existing models and compare the challenger with the champion, without training; or choose the
    champion with --version and --reason, also during a run."""
    if not version and (reason or task or force):
        raise ConfigError("--reason, --task and --force belong to --version; name the version, or leave them out")
    if not version:
        with server():
            from flows.retrain import promote

            promote(str(params))
        return
    from components.registry.ledger import assign

    project = Project(params)
    settings = project.settings
    os.chdir(project.root)
    chosen = task or settings.run.tasks[0]
    terminal.say(assign(settings.registry, chosen, version=version, reason=reason, force=force))
