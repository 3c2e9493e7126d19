"""Commands about labels: what to label next, which labels look wrong, what more labels would bring."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from components.commands.common import PARAMS, Overwrite, ParamsFile, Task, registry_of
from components.processors import cores
from components.settings.loading import load_params
from components.settings.registry import find_repository
from components.training import threads

app = typer.Typer()


@app.command()
def suggest(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="File or folder of texts (csv, tsv, jsonl, parquet, txt); by default rows of train without a label, "
            "otherwise the domain."
        ),
    ] = None,
    *,
    task: Task = "",
    count: Annotated[int, typer.Option(help="Number of texts.", min=1)] = 50,
    output: Annotated[
        Path | None, typer.Option(help="csv or jsonl file to write; TASK-to-label.csv by default.")
    ] = None,
    overwrite: Overwrite = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Choose the texts that should be labelled next and write them with an empty column of labels."""
    from components.labelling import command

    settings, file, output = load_params(params), file and file.resolve(), output and output.resolve()
    if root := find_repository(params.parent):
        output = output or Path.cwd() / f"{task or settings.run.tasks[0]}-to-label.csv"
        os.chdir(root)
    threads.own(cores())
    for line in command.suggest(settings, task=task, count=count, file=file, output=output, overwrite=overwrite):
        print(line)


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

    settings, output = load_params(params), output and output.resolve()
    answers = [path.resolve() for path in answers]
    if root := find_repository(params.parent):
        output = output or Path.cwd() / f"{task or settings.run.tasks[0]}-label-quality.csv"
        os.chdir(root)
    threads.own(cores())
    for line in command.label_quality(
        settings, task=task, annotators=annotators, answers=answers, output=output, overwrite=overwrite
    ):
        print(line)


@app.command("more-labels")
def more_labels(
    *,
    task: Task = "",
    system: Annotated[str, typer.Option(help="System of the last run; the best one by default.")] = "",
    labels: Annotated[
        int, typer.Option(help="Further labels, counted as the budgets are; 0: 100, or as many as there are.", min=0)
    ] = 0,
    params: ParamsFile = PARAMS,
) -> None:
    """Estimate what more labels would bring, from the label curve of the last run."""
    from components.labelling import command

    print(command.more_labels(registry_of(params), task=task, system=system, labels=labels))
