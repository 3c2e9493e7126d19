"""Options of several commands, and what several commands do."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_type_hints

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from components.core.errors import missing_package
from components.settings.minutes import FIRST_MINUTES

if TYPE_CHECKING:
    from components.settings.params import Params

#: First word of the line of `init` that names the next commands.
NEXT = "next:"
PARAMS = Path("params.yaml")
ParamsFile = Annotated[Path, typer.Option("--params", help="Settings file.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an output that Headstart has written and nobody has changed.")
]
Task = Annotated[str, typer.Option(help="Task; the first of run.tasks by default.")]

Minutes = Annotated[float, typer.Option(help="Limit of training in minutes.")]


@dataclass(frozen=True, kw_only=True)
class DataFlags:
    """Flags of `init` and `fit`: the data, and what is not to be guessed."""

    unlabelled: Annotated[list[Path], typer.Option(help="Text without labels; may be repeated.")] = field(
        default_factory=list
    )
    start: Annotated[
        list[str],
        typer.Option(
            help="Encoder: a folder, a name of `headstart starts`, or OWNER/NAME of the hub; the best of several."
        ),
    ] = field(default_factory=list)
    text: Annotated[str, typer.Option(help="Column of the text; FIRST,SECOND for pairs.")] = ""
    label: Annotated[str, typer.Option(help="Column of the label.")] = ""
    group: Annotated[str, typer.Option(help="Column of the group: its rows stay in one split and one fold.")] = ""
    kind: Annotated[str, typer.Option(help="Kind of task, such as classification or regression.")] = ""
    label_separator: Annotated[str, typer.Option(help="Separator of several labels in one text.")] = ""
    no_label: Annotated[str, typer.Option(help="drop: rows without a label are left out; refuse: an error.")] = ""
    scheme: Annotated[str, typer.Option(help="Scheme of tags: bio, iob1, iobes or none; guessed by default.")] = ""
    encoding: Annotated[str, typer.Option(help="Encoding of the file, such as cp1252; guessed by default.")] = ""
    delimiter: Annotated[str, typer.Option(help="Separator of the columns of csv; guessed by default.")] = ""
    header: Annotated[bool | None, typer.Option(help="Whether the first line names the columns.")] = None
    quotes: Annotated[bool | None, typer.Option(help="Whether double quotes enclose fields of csv.")] = None

    @property
    def reading(self) -> dict[str, Any]:
        """How the files are read, as keys of the task."""
        return {name: self.given[name] for name in ("encoding", "delimiter", "header", "quotes") if name in self.given}

    @property
    def given(self) -> dict[str, Any]:
        """The flags that are given, without the data."""
        names = (each.name for each in fields(DataFlags) if each.name not in ("unlabelled", "start"))
        return {name: getattr(self, name) for name in names if getattr(self, name) not in ("", None)}


@dataclass(frozen=True, kw_only=True)
class InitOptions(DataFlags):
    """Flags of `headstart init`; what is empty is guessed."""

    labelled: Annotated[Path, typer.Argument(help="Labelled file, or folder with a file per split.")] = field(
        kw_only=False
    )
    name: Annotated[str, typer.Option(help="Name of the task; that of the file by default.")] = ""
    language: Annotated[str, typer.Option(help="Language code of the texts.")] = ""
    minutes: Minutes = FIRST_MINUTES
    overwrite: Overwrite = False


# Of `predict`; columns also of `drift`, int8 also of `serve`.
Columns = Annotated[list[str], typer.Option(help="Column of a task input, such as `text=body`; may be repeated.")]
Int8 = Annotated[bool, typer.Option("--int8", help="Quantise the matrices of a Transformer to 8-bit integers.")]


def flags(function: Callable[[Any], None]) -> Callable[..., None]:
    """A command whose flags are the fields of the dataclass that `function` takes; fields without a default are
    arguments."""
    (options,) = (hint for name, hint in get_type_hints(function).items() if name != "return")
    hints = get_type_hints(options, include_extras=True)

    def command(**given: Any) -> None:
        function(options(**given))

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__annotations__ = hints
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=(
                    each.default_factory()
                    if each.default_factory is not MISSING
                    else inspect.Parameter.empty
                    if each.default is MISSING
                    else each.default
                ),
                annotation=hints[each.name],
            )
            for each in fields(options)
        ]
    )
    return command


def run_flow(verb: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by that of a command of `flows`.

    Raises:
        ConfigError: Prefect is not installed.
    """
    if find_spec("prefect") is None:
        raise missing_package("prefect")
    os.execv(sys.executable, [sys.executable, "-m", "components.cli", verb, *arguments])


def settings_at(params: Path) -> Params:
    """The settings in a file; what reads them is imported here, so that the help of a command takes no time."""
    from components.settings.loading import load_params

    return load_params(params)


def registry_of(params: Path) -> Params:
    """Settings of a command that reads no other file; relative paths begin at the settings file's repository."""
    from components.settings.registry import find_repository

    settings = settings_at(params)
    if root := find_repository(params.parent):
        os.chdir(root)
    return settings


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]], *, width: int = 120) -> None:
    """Print a table. Without a terminal, rich would wrap cells at 80 columns."""
    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    Console(width=width).print(table)
