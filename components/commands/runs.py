"""Commands about runs: stages, plans, families, studies, recorded numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from components.commands.common import PARAMS, ParamsFile, run_flow
from components.errors import ConfigError
from components.settings.loading import load_params

app = typer.Typer()


@app.command()
def stage(name: str, *, item: str = "", params: ParamsFile = PARAMS) -> None:
    """Run one stage as DVC does, for one item (`general`, `ulmfit`, `aws-type-ulmfit-adapted` ...)."""
    from components.pipeline.dvc_yaml import write_dvc_yaml
    from components.pipeline.identity import STAGE as IDENTITY
    from components.pipeline.stages import run_stage

    settings = load_params(params)
    if name == IDENTITY and write_dvc_yaml(settings, params):
        # The first stage of every run by DVC, which has read the file already.
        raise ConfigError(f"{params}: the stages have changed, and dvc.yaml was written again; repeat the command")
    print(run_stage(name, settings, item=item))


@app.command()
def dvc(*, params: ParamsFile = PARAMS) -> None:
    """Write dvc.yaml, the stages of the pipeline, from the settings. Every run does so too."""
    from components.pipeline.dvc_yaml import write_dvc_yaml

    written = write_dvc_yaml(load_params(params), params)
    print(f"{params.with_name('dvc.yaml')}: {'written' if written else 'up to date'}")


@app.command()
def why(
    stage: Annotated[str, typer.Argument(help="Stage or STAGE@ITEM; all that would run by default.")] = "",
    *,
    document: Annotated[
        str, typer.Option(help="Document of a corpus: its id, FILE:LINE, or FILE#ROW for Parquet.")
    ] = "",
    corpus: Annotated[str, typer.Option(help="Corpus to search: general, domain ...; all by default.")] = "",
    params: ParamsFile = PARAMS,
) -> None:
    """Explain why a stage would run or not, or whether the stage `ingest` kept or dropped a document."""
    if document and stage:
        raise typer.BadParameter("give either a stage or --document ID")
    if not document:
        arguments = [*([stage] if stage else []), "--params", str(params)]
        run_flow("why", arguments)
    from components.pipeline.documents import find_document

    for name, fate in find_document(load_params(params), document, corpus=corpus):
        print(f"{name}: {fate}")


@app.command()
def plan(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Show what a run would do, why, and what it would cost; nothing is run."""
    arguments = [*(["--json"] if as_json else []), "--params", str(params)]
    run_flow("costs", arguments)


@app.command()
def families(*, params: ParamsFile = PARAMS) -> None:
    """Compare the families of the last run in a table, best first (`bakeoff` trains them)."""
    from components.reporting import bakeoff

    run = load_params(params).run
    columns, rows = bakeoff.table(bakeoff.entries(Path(run.out), families=run.families, tasks=run.tasks))
    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    # Without a terminal, rich wraps cells at 80 columns.
    Console(width=max(120, 24 * len(columns))).print(table)


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def study(context: typer.Context) -> None:
    """Run a study on a finished run: `benefits`, `layers`, `which-source` ... (`headstart study` lists them)."""
    from components.studies import command

    command.study(context.args)


results_app = typer.Typer(invoke_without_command=True, help="Render the measured numbers of docs/results in documents.")
app.add_typer(results_app, name="results")


@results_app.callback()
def results(
    context: typer.Context,
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 if a document differs.")] = False,
) -> None:
    """Render the measured numbers of docs/results in README.md, docs/ and experiments/README.md."""
    from components.reporting import rendering

    if context.invoked_subcommand is None:
        lines = rendering.differences(Path()) if check else rendering.render(Path())
        for line in lines:
            print(line, file=sys.stderr if check else sys.stdout)
        raise typer.Exit(1 if check and lines else 0)


@results_app.command()
def record(
    name: str,
    *,
    evaluation: Annotated[Path, typer.Option(help="Directory that the stage `evaluate` has written.")],
    command: Annotated[str, typer.Option(help="Command whose run is recorded.")] = "make run",
    score: Annotated[str, typer.Option(help="Metric; the primary metric of the task by default.")] = "",
    title: Annotated[str, typer.Option(help="Title; metric, task and number of test rows by default.")] = "",
) -> None:
    """Write the scores of an evaluation to docs/results/NAME.json."""
    from components.reporting import recording

    result = recording.of_evaluation(evaluation, name, command=command, score=score, title=title)
    print(recording.write_result(result, Path()))
