"""Commands about runs (stages, studies, and those that programs of `flows` execute) and about the registry."""

import json
from typing import Annotated

import typer

from components.cli.common import PARAMS, ParamsFile, Task, registry_of, run_flow, settings_at
from components.cli.programs import FLOWS
from components.core.errors import ConfigError

app = typer.Typer()


@app.command()
def stage(
    name: str,
    *,
    item: str = "",
    params: ParamsFile = PARAMS,
    code: Annotated[str, typer.Option(hidden=True, help="Digest of the installed code, for DVC.")] = "",
) -> None:
    """Run one stage as DVC does, for one item (`general`, `ulmfit`, `aws-type-ulmfit-adapted` ...)."""
    from components.pipeline.dvc_yaml import write_dvc_yaml
    from components.pipeline.identity import STAGE as IDENTITY
    from components.pipeline.running import run_stage

    settings = settings_at(params)
    if name == IDENTITY and write_dvc_yaml(settings, params):
        # The first stage of every run by DVC, which has read the file already.
        raise ConfigError(f"{params}: the stages have changed, and dvc.yaml was written again; repeat the command")
    print(run_stage(name, settings, item=item))


@app.command()
def dvc(*, params: ParamsFile = PARAMS) -> None:
    """Write dvc.yaml, the stages of the pipeline, from the settings. Every run does so too."""
    from components.pipeline.dvc_yaml import write_dvc_yaml

    written = write_dvc_yaml(settings_at(params), params)
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

    for name, reason in find_document(settings_at(params), document, corpus=corpus):
        print(f"{name}: {reason}")


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def study(context: typer.Context) -> None:
    """Run a study on a finished run: `benefits`, `layers`, `prompts` ... (`headstart study` lists them)."""
    from components.studies import command

    command.study(context.args)


def _hand_over(verb: str, help_text: str) -> None:
    @app.command(
        verb,
        help=help_text,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def run(context: typer.Context) -> None:
        run_flow(verb, context.args)


for _verb, _help in FLOWS.items():
    _hand_over(_verb, _help)


@app.command()
def champion(
    *,
    task: Annotated[str, typer.Option(help="Task; the first of run.tasks by default, with --history all models.")] = "",
    at: Annotated[
        str, typer.Option(help="Date or time (ISO 8601, UTC): who was the champion then; a date stands for its end.")
    ] = "",
    history: Annotated[
        bool, typer.Option("--history", help="Print every decision, promotion, rollback and hand move.")
    ] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Show which version is or was the champion of a task, since when, by whom and why; or the whole history."""
    from components.registry import explain

    settings = registry_of(params)
    if history:
        lines = explain.history(settings.registry, task) or ["no entries"]
    else:
        lines = explain.describe_champion(settings.registry, task or settings.run.tasks[0], at=at)
    for line in lines:
        print(line)


@app.command()
def trace(
    model: Annotated[
        str, typer.Argument(help="NAME, NAME:VERSION, NAME@ALIAS, or the path of a trained model; NAME or its task.")
    ] = "",
    *,
    document: Annotated[str, typer.Option(help="A document instead of a model: id, FILE:LINE, FILE#ROW or text.")] = "",
    where: Annotated[str, typer.Option("--in", help="Corpus or task in which an id is looked up.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Trace a model back to its raw documents, code and machine; or a document to the models that learned from it."""
    from components.pipeline.lineage import trace as tracing

    if bool(model) == bool(document):
        raise typer.BadParameter("give either a model or --document")
    settings = registry_of(params)
    if document:
        traced = tracing.trace_document(settings, document, where=where)
        lines = tracing.document_lines(traced)
    else:
        traced = tracing.trace_model(settings, model)
        lines = tracing.tree(traced)
    for line in [json.dumps(traced, indent=1, ensure_ascii=False)] if as_json else lines:
        print(line)


@app.command()
def rollback(
    *,
    task: Task = "",
    to: Annotated[str, typer.Option(help="Version; the previous champion by default.")] = "",
    reason: Annotated[str, typer.Option(help="Why; recorded in the ledger.")] = "",
    params: ParamsFile = PARAMS,
) -> None:
    """Restore an earlier champion, at once, also during a run; the later champions are not promoted again."""
    from components.registry import ledger

    settings = registry_of(params)
    for line in ledger.rollback(settings.registry, task or settings.run.tasks[0], to=to, reason=reason):
        print(line)
