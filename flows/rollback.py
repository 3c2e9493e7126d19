"""Restore the previous champion of a task. The ledger records it like every other change of the alias."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from components.settings.loading import load_params
from flows.command import PARAMS, ParamsFile, main
from flows.repository import find_root, locked
from flows.terminal import terminal


def rollback(*, task: str = "", params: Path = PARAMS) -> None:
    """Restore the previous champion of a task (the first of `run.tasks` if empty). Waits for a running run.

    Raises:
        RegistryError: there is no champion, or no previous one.
    """
    from components.registry.promote import rollback as restore

    settings = load_params(params)
    with locked(find_root(params.parent), what="rollback", say=terminal.say):
        terminal.say(restore(settings.registry, task or settings.run.tasks[0]))


def command(
    *,
    task: Annotated[str, typer.Option(help="Task; the first of run.tasks by default.")] = "",
    params: ParamsFile = PARAMS,
) -> None:
    """Restore the previous champion."""
    rollback(task=task, params=params)


if __name__ == "__main__":
    main(command)
