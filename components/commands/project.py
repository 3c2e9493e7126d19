"""Commands that set up a project: settings, checks, built-in data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from components.commands.common import (
    PARAMS,
    Kind,
    LabelColumn,
    Minutes,
    Overwrite,
    ParamsFile,
    Starts,
    TextColumn,
    Unlabelled,
    registry_of,
)
from components.processors import cores
from components.settings.finetune import FIRST_MINUTES
from components.training import threads

app = typer.Typer()


@app.command()
def init(
    labelled: Annotated[Path, typer.Argument(help="Labelled file, or folder with a file per split.")],
    *,
    unlabelled: Unlabelled = [],  # noqa: B006 -- typer does not mutate the default
    start: Starts = [],  # noqa: B006
    text: TextColumn = "",
    label: LabelColumn = "",
    group: Annotated[str, typer.Option(help="Column of the group: its rows stay in one split and one fold.")] = "",
    kind: Kind = "",
    name: Annotated[str, typer.Option(help="Name of the task; that of the file by default.")] = "",
    language: Annotated[str, typer.Option(help="Language code of the texts.")] = "",
    minutes: Minutes = FIRST_MINUTES,
    overwrite: Overwrite = False,
) -> None:
    """Look at labelled data and write params.yaml, in the folder of the command; nothing is asked.

    Kind of task, columns and language are guessed, and shown; each can be set by a flag or changed in params.yaml."""
    from components.onboarding.command import Options
    from components.onboarding.command import init as write

    threads.own(cores())
    options = Options(
        labelled,
        unlabelled=unlabelled,
        starts=start,
        name=name or None,
        kind=kind or None,
        text=text or None,
        label=label or None,
        group=group or None,
        language=language or None,
        minutes=minutes,
        overwrite=overwrite,
    )
    for line in write(options, root=Path.cwd()):
        print(line)


@app.command()
def check(
    *,
    accept: Annotated[
        str,
        typer.Option(help="Accept the data as the version that later ones are compared with; the reason is recorded."),
    ] = "",
    params: ParamsFile = PARAMS,
) -> None:
    """Check settings, model sizes and the data, which are compared with the last accepted version."""
    from components.pipeline.checks import check_new_data, check_params

    settings = registry_of(params)
    check_params(settings)
    print(f"{params}: ok")
    for line in check_new_data(settings, accept=accept):
        print(line)


@app.command("params")
def params_(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: key -> value and source.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Print all settings, defaults included, and where each comes from: line of the file, or how it was computed."""
    from components.settings.sources import sources

    found = sources(params)
    if as_json:
        print(json.dumps({key: {"value": value, "source": where} for key, (value, where) in found.items()}, indent=1))
        return
    width = min(48, max(len(key) for key in found))
    for key, (value, where) in found.items():
        print(f"{key.ljust(width)}  {json.dumps(value, ensure_ascii=False)}  # {where}")


@app.command()
def data(*, directory: Annotated[Path, typer.Option(help="Folder to write.")] = Path("data")) -> None:
    """Extract the built-in data from the documentation of the installed packages."""
    from components.ingestion.builtin import build

    build(directory)
