"""Commands about labels: what to label next, which labels look wrong, what more labels would bring."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from components.commands.common import PARAMS, Overwrite, ParamsFile, Task, flags, registry_of
from components.processors import cores
from components.settings.loading import load_params
from components.settings.params import Params
from components.settings.registry import find_repository
from components.training import threads

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
    gain: Annotated[
        bool, typer.Option("--gain", help="Only estimate what --count more labels would bring, from the last run.")
    ] = False
    system: Annotated[str, typer.Option(help="With --gain: system of the last run; the best one by default.")] = ""
    overwrite: Overwrite = False
    params: ParamsFile = PARAMS


@app.command()
@flags
def suggest(options: SuggestFlags) -> None:
    """Choose the texts that should be labelled next and write them with an empty column of labels; or estimate what
    more labels would bring."""
    from components.labelling import command

    if options.gain:
        settings = registry_of(options.params)
        print(command.more_labels(settings, task=options.task, system=options.system, labels=options.count))
        return
    file = options.file and options.file.resolve()
    settings, output = _prepared(options.params, options.task, options.output, name="to-label")
    for line in command.suggest(
        settings,
        task=options.task,
        count=options.count,
        file=file,
        output=output,
        overwrite=options.overwrite,
    ):
        print(line)


def _prepared(params: Path, task: str, output: Path | None, *, name: str) -> tuple[Params, Path | None]:
    """The settings, whose repository becomes the working directory, and the output, TASK-NAME.csv by default."""
    settings, output = load_params(params), output and output.resolve()
    if root := find_repository(params.parent):
        output = output or Path.cwd() / f"{task or settings.run.tasks[0]}-{name}.csv"
        os.chdir(root)
    threads.own(cores())
    return settings, output


@app.command("label-quality")
def label_quality(
    *,
    task: Task = "",
    annotators: Annotated[str, typer.Option(help="Column of the task's files that names who gave the label.")] = "",
    answers: Annotated[
        list[Path], typer.Option(help="File of further labels, as `headstart label` reads it; may be repeated.")
    ] = [],  # noqa: B006 -- typer does not mutate the default
    output: Annotated[
        Path | None, typer.Option(help="csv file of the rows to look at; TASK-label-quality.csv by default.")
    ] = None,
    overwrite: Overwrite = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Find labels that look wrong, copies of a text with different labels, and the agreement of annotators."""
    from components.labelling import command

    answers = [path.resolve() for path in answers]
    settings, output = _prepared(params, task, output, name="label-quality")
    for line in command.label_quality(
        settings, task=task, annotators=annotators, answers=answers, output=output, overwrite=overwrite
    ):
        print(line)
