"""Commands that set up a project: settings, checks, built-in data."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from components.cli.common import PARAMS, InitOptions, ParamsFile, flags

app = typer.Typer()


@app.command()
@flags
def init(options: InitOptions) -> None:
    """Look at labelled data and write params.yaml, in the folder of the command; nothing is asked.

    Kind of task, columns and language are guessed, and shown; each can be set by a flag or changed in params.yaml."""
    from components.cli.onboarding.command import init as write

    for line in write(options, root=Path.cwd()):
        print(line)


@app.command()
def check(
    *,
    accept: Annotated[
        str,
        typer.Option(help="Accept the data as the version that later ones are compared with; the reason is recorded."),
    ] = "",
    settings: Annotated[
        bool, typer.Option("--settings", help="Only print all settings, and the line or rule that sets each.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --settings: JSON, key -> value and source.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Check settings, model sizes and the data, which are compared with the last accepted version; or print the
    settings, defaults included."""
    if settings:
        _print_settings(params, as_json=as_json)
        return
    from components.pipeline.checks import check_file
    from components.settings.registry import find_repository

    if (root := find_repository(params.parent)) and root != Path.cwd():
        params = params.absolute()
        os.chdir(root)
    for line in check_file(params, accept=accept):
        print(line)


def _print_settings(params: Path, *, as_json: bool) -> None:
    from components.settings.loading import sources

    keys = sources(params)
    if as_json:
        print(json.dumps({key: {"value": value, "source": where} for key, (value, where) in keys.items()}, indent=1))
        return
    width = min(48, max(len(key) for key in keys))
    for key, (value, where) in keys.items():
        print(f"{key.ljust(width)}  {json.dumps(value, ensure_ascii=False)}  # {where}")


@app.command()
def data(*, directory: Annotated[Path, typer.Option(help="Folder to write.")] = Path("data")) -> None:
    """Extract the built-in data from the documentation of the installed packages."""
    from components.builtin_data import build

    build(directory)
