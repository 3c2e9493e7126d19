"""Commands about labels: what to label next, which labels look wrong."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.common import PARAMS, Overwrite, ParamsFile, Task, flags, registry_of
from components.core import threads
from components.core.processors import cores

if TYPE_CHECKING:
    from components.settings.params import Params

app = typer.Typer()


@dataclass(frozen=True)
class SuggestFlags:
    """Flags of `headstart suggest`."""

    file: Annotated[
        Path | None,
        typer.Argument(
            help="File or folder of texts (csv, tsv, jsonl, parquet, txt); by default rows of train without a label, "
            "otherwise the domain."
        ),
    ] = None
    task: Task = ""
    count: Annotated[int, typer.Option(help="Number of texts.", min=1)] = 50
    output: Annotated[Path | None, typer.Option(help="csv or jsonl file to write; TASK-to-label.csv by default.")] = (
        None
    )
    overwrite: Overwrite = False
    params: ParamsFile = PARAMS


@app.command()
@flags
def suggest(options: SuggestFlags) -> None:
    """Choose the texts that should be labelled next and write them with an empty column of labels."""
    from components.labelling import command

    file = options.file and options.file.resolve()
    settings, output = _prepared(
        options.params, options.task, options.output, name="to-label", overwrite=options.overwrite
    )
    for line in command.suggest(
        settings,
        task=options.task,
        count=options.count,
        file=file,
        output=output,
        overwrite=options.overwrite,
    ):
        print(line)


def _prepared(params: Path, task: str, output: Path | None, *, name: str, overwrite: bool) -> tuple[Params, Path]:
    """The settings, whose repository becomes the working directory, and the output: by default TASK-NAME.csv, or
    TASK-NAME-2.csv and so on where that exists."""
    folder, output = Path.cwd(), output and output.resolve()
    settings = registry_of(params)
    stem = folder / f"{task or settings.run.tasks[0]}-{name}"
    names = (Path(f"{stem}{'' if number == 1 else f'-{number}'}.csv") for number in itertools.count(1))
    output = output or next(path for path in names if overwrite or not path.exists())
    threads.use(cores())
    return settings, output


@app.command("label-quality")
def label_quality(
    *,
    task: Task = "",
    output: Annotated[
        Path | None, typer.Option(help="csv file of the rows to look at; TASK-label-quality.csv by default.")
    ] = None,
    overwrite: Overwrite = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Find labels that look wrong and copies of a text with different labels."""
    from components.labelling import command

    settings, output = _prepared(params, task, output, name="label-quality", overwrite=overwrite)
    for line in command.label_quality(settings, task=task, output=output, overwrite=overwrite):
        print(line)
