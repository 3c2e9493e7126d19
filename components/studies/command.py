"""The studies as commands: `headstart study NAME`. The flags come from the study's signature."""

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

#: Minimum width of tables; a log has no fixed width.
WIDTH = 160


def study(arguments: Sequence[str]) -> None:
    """Run the study that `arguments` name, with its options.

    Raises:
        ConfigError: unknown study; the message names those that exist.
        HeadstartError: an error of the study.
    """
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    if name is not None and arguments[0] == name and name not in STUDIES:
        raise ConfigError(f"unknown study {name!r}{nearest(name, STUDIES)}")
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Studies of a finished run. Each prints tables, draws figures and adds a chapter to the report.",
    )
    # With a callback, typer requires the command's name even if there is only one command.
    app.callback()(lambda: None)
    for entry in STUDIES.values():
        app.command(entry.name, help=entry.question)(_command(entry))
    app(args=list(arguments), prog_name="headstart study")


def run(entry: Study, outputs: Outputs, **options: Any) -> tuple[Findings, Path]:
    """Run a study and write its findings; returns them with their directory.

    Raises:
        HeadstartError: an error of the study.
    """
    found = entry.run(outputs, **options)
    return found, findings.write(outputs.out, entry.name, found, options=options, inputs=outputs.read)


def _command(entry: Study) -> Callable[..., None]:
    """A function with the signature of the study, and `--params` in place of the outputs."""

    def command(*, params: Path, **options: Any) -> None:
        settings = load_params(params)
        found, directory = run(entry, Outputs(settings), **options)
        _print(found)
        print(f"numbers and figures: {directory}")
        if not (Path(settings.run.out) / "report" / MANIFEST).is_file():
            print(f"report: run `headstart stage report --params {params}` to add this study")
            return
        try:
            print(f"report: {run_stage('report', settings) / 'report.html'}")
        except HeadstartError as error:
            print(f"report: not updated ({error})")

    hints = get_type_hints(entry.run, include_extras=True)
    flags = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in list(inspect.signature(entry.run).parameters.values())[1:]
    ]
    file = Annotated[Path, typer.Option("--params", help="Settings file.")]
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
