"""Options of several commands, and what several commands do."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from components.errors import missing_package
from components.settings.loading import load_params
from components.settings.params import Params
from components.settings.registry import find_repository

PARAMS = Path("params.yaml")
ParamsFile = Annotated[Path, typer.Option("--params", help="Settings file.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an output that Headstart has written and nobody has changed.")
]
Task = Annotated[str, typer.Option(help="Task; the first of run.tasks by default.")]

# Of `init` and `fit`.
Unlabelled = Annotated[list[Path], typer.Option(help="Text without labels; may be repeated.")]
Starts = Annotated[
    list[str], typer.Option(help="Encoder: a folder, or a name of `headstart starts`; the best of several is used.")
]
TextColumn = Annotated[str, typer.Option(help="Column of the text; FIRST,SECOND for pairs.")]
LabelColumn = Annotated[str, typer.Option(help="Column of the label.")]
Kind = Annotated[str, typer.Option(help="Kind of task, such as classification or regression.")]
Minutes = Annotated[float, typer.Option(help="Limit of training in minutes.")]

# Of `predict` and `predict-file`; columns also of `drift`, int8 also of `serve`.
Columns = Annotated[list[str], typer.Option(help="Column of a task input, such as `text=body`; may be repeated.")]
Strict = Annotated[bool, typer.Option("--strict", help="End at the first bad row.")]
Workers = Annotated[int, typer.Option(help="Number of processes; by default one per core.")]
Int8 = Annotated[bool, typer.Option("--int8", help="Quantise the matrices of a Transformer to 8-bit integers.")]
Form = Annotated[str, typer.Option("--format", help="Write for label-studio, doccano, prodigy or datasets.")]


def run_flow(verb: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by a program of `flows`.

    Raises:
        ConfigError: Prefect is not installed.
    """
    if find_spec("prefect") is None:
        raise missing_package("prefect")
    os.execv(sys.executable, [sys.executable, "-m", f"flows.{verb}", *arguments])


def registry_of(params: Path) -> Params:
    """Settings of a command that reads no other file; relative paths are those of the settings file's repository."""
    settings = load_params(params)
    if root := find_repository(params.parent):
        os.chdir(root)
    return settings
