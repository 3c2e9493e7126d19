"""Commands about runs: stages, plans, studies."""

from __future__ import annotations

from typing import Annotated

import typer

from components.cli.common import PARAMS, ParamsFile, run_flow
from components.core.errors import ConfigError

app = typer.Typer()


@app.command()
def stage(name: str, *, item: str = "", params: ParamsFile = PARAMS) -> None:
    """Run one stage as DVC does, for one item (`general`, `ulmfit`, `aws-type-ulmfit-adapted` ...)."""
    from components.pipeline.dvc_yaml import write_dvc_yaml
    from components.pipeline.identity import STAGE as IDENTITY
    from components.pipeline.running import run_stage
    from components.settings.loading import load_params

    settings = load_params(params)
    if name == IDENTITY and write_dvc_yaml(settings, params):
        # The first stage of every run by DVC, which has read the file already.
        raise ConfigError(f"{params}: the stages have changed, and dvc.yaml was written again; repeat the command")
    print(run_stage(name, settings, item=item))


@app.command()
def dvc(*, params: ParamsFile = PARAMS) -> None:
    """Write dvc.yaml, the stages of the pipeline, from the settings. Every run does so too."""
    from components.pipeline.dvc_yaml import write_dvc_yaml
    from components.settings.loading import load_params

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
    from components.pipeline.lineage.documents import find_document
    from components.settings.loading import load_params

    for name, reason in find_document(load_params(params), document, corpus=corpus):
        print(f"{name}: {reason}")


@app.command()
def plan(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Show what a run would do, why, and what it would cost; nothing is run."""
    arguments = [*(["--json"] if as_json else []), "--params", str(params)]
    run_flow("costs", arguments)


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def study(context: typer.Context) -> None:
    """Run a study on a finished run: `benefits`, `layers`, `which-source` ... (`headstart study` lists them)."""
    from components.studies import command

    command.study(context.args)
