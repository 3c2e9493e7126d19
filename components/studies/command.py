"""The studies as commands: `headstart study NAME`, with the flags of the study's own signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from components.artifacts import MANIFEST
from components.errors import ConfigError, HeadstartError, nearest
from components.pipeline.stages import run_stage
from components.reporting import findings
from components.reporting.findings import Findings
from components.settings.loading import load_params
from components.studies.base import Study
from components.studies.outputs import Outputs
from components.studies.table import STUDIES

#: Least width of the terminal's tables: a log has no edge.
WIDTH = 160


def study(arguments: Sequence[str]) -> None:
    """Run the study that `arguments` name, with its options.

    Raises:
        ConfigError: there is no such study; names those that exist.
        HeadstartError: what the study says.
    """
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    if name is not None and arguments[0] == name and name not in STUDIES:
        raise ConfigError(f"unknown study {name!r}{nearest(name, STUDIES)}")
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Studies of a finished run: each prints a table, draws a figure and enters the report.",
    )
    # A callback keeps the names even where the table has one entry.
    app.callback()(lambda: None)
    for entry in STUDIES.values():
        app.command(entry.name, help=entry.question)(_command(entry))
    app(args=list(arguments), prog_name="headstart study")


def run(entry: Study, outputs: Outputs, **options: Any) -> tuple[Findings, Path]:
    """Answer a study and write what it found; returns both.

    Raises:
        HeadstartError: what the study says.
    """
    found = entry.run(outputs, **options)
    return found, findings.write(outputs.out, entry.name, found, options=options, inputs=outputs.read)


def _command(entry: Study) -> Callable[..., None]:
    """A function whose signature is the study's, with `--params` in place of the outputs."""

    def command(*, params: Path, **options: Any) -> None:
        settings = load_params(params)
        found, directory = run(entry, Outputs(settings), **options)
        _print(found)
        print(f"numbers and figures: {directory}")
        if not (Path(settings.run.out) / "report" / MANIFEST).is_file():
            print(f"report: it will hold this study once `headstart stage report --params {params}` has run")
            return
        try:
            print(f"report: {run_stage('report', settings) / 'report.html'}")
        except HeadstartError as error:
            print(f"report: not renewed ({error})")

    hints = get_type_hints(entry.run, include_extras=True)
    flags = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in list(inspect.signature(entry.run).parameters.values())[1:]
    ]
    file = Annotated[Path, typer.Option("--params", help="The file of settings.")]
    where = inspect.Parameter("params", inspect.Parameter.KEYWORD_ONLY, default=Path("params.yaml"), annotation=file)
    parameters = [*flags, where]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _print(found: Findings) -> None:
    for sentence in (*found.chapter.lead, *found.chapter.text):
        print(sentence)
    for part in found.chapter.tables:
        table = Table(*part.columns, box=box.SIMPLE_HEAD, title=part.title or None, title_justify="left")
        for row in part.rows:
            table.add_row(*map(escape, row))
        Console(width=max(WIDTH, 18 * len(part.columns))).print(table)
