"""Commands about the registry: champion, history, lineage, rollback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from components.cli.common import PARAMS, ParamsFile, Task, registry_of

app = typer.Typer()


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
    from components.registry import aliases

    settings = registry_of(params)
    if history:
        lines = aliases.history(settings.registry, task) or ["no entries"]
    else:
        lines = aliases.describe_champion(settings.registry, task or settings.run.tasks[0], at=at)
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
        traced = tracing.trace_document(settings, document, root=Path.cwd(), where=where)
        lines = tracing.document_lines(traced)
    else:
        traced = tracing.trace_model(settings, model, root=Path.cwd())
        lines = tracing.model_lines(traced)
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
    from components.registry import aliases

    settings = registry_of(params)
    for line in aliases.rollback(settings.registry, task or settings.run.tasks[0], to=to, reason=reason):
        print(line)
