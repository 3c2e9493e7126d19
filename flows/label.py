"""Append the answers of people to the file of labels, and version the data: `headstart label FILE`."""

import os
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from components.cli.common import PARAMS, ParamsFile, Task
from components.core.environment import who
from components.core.errors import ConfigError
from components.core.steps import step
from components.labelling import answers as labelling
from components.labelling.answers import Resolve
from components.labelling.command import merged_lines
from components.labelling.rows import source_of
from flows.execution import add_folder
from flows.repository import Project
from flows.terminal import terminal


def command(
    file: Annotated[
        Path | None, typer.Argument(help="csv, tsv, jsonl or parquet file with the columns of `headstart suggest`.")
    ] = None,
    *,
    task: Task = "",
    by: Annotated[str, typer.Option(help="Who gave the labels; the account by default.")] = "",
    resolve: Annotated[
        str, typer.Option(help="Which of two labels of a text is kept: mine (FILE) or theirs (the data).")
    ] = "",
    new_labels: Annotated[bool, typer.Option("--new-labels", help="Allow labels that train does not have.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take back the last merge.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Append the answers in a file to the file of labels of a task, with who gave them and when. Conflicts are shown,
    and nothing is written, unless --resolve says which label is kept."""
    if bool(file) == undo:
        raise typer.BadParameter("give either a file or --undo")
    if resolve not in get_args(Resolve):
        raise ConfigError(f"--resolve: {resolve!r} is not one of mine, theirs")
    project, file = Project(params), file and file.resolve()
    with project.locked("label"):
        settings = project.settings
        name, source = source_of(settings, task)
        empty = 0
        if file is None:
            merged = labelling.undo(settings, task=name)
            lines = [f"{merged.file}: merge {merged.batch} taken back: {merged.added} rows removed, "
                     f"{merged.changed} labels restored"]  # fmt: skip
        else:
            given, empty = labelling.read_answers(file, source, by=by or who())
            merged = labelling.merge(settings, given, task=name, resolve=cast(Resolve, resolve), new_labels=new_labels)
            lines = list(merged_lines(merged, task=name, empty=empty))
        for line in lines:
            terminal.say(line)
        if merged.batch and (tracked := tracked_by(merged.file)) is not None:
            add_folder(tracked)
            terminal.say(f"{tracked}.dvc: new version; commit it, and run `{step('fit')}`")


def tracked_by(path: Path) -> Path | None:
    """The file or folder that holds `path` and has a .dvc file, relative to the working directory; None if there is
    none."""
    relative = Path(os.path.relpath(path))
    return next((each for each in (relative, *relative.parents) if each.name and Path(f"{each}.dvc").is_file()), None)
