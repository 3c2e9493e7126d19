"""Remove documents from data, labels, outputs and caches, with a certificate: `headstart forget ID`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from components.cli.common import PARAMS, ParamsFile
from components.core.errors import ConfigError
from components.pipeline.lineage import forget as removal
from components.settings.imports import is_local_copy
from flows.execution import add_folder
from flows.label import tracked_by
from flows.plan import read_plan
from flows.repository import Project, pipeline_of
from flows.run import wanted
from flows.terminal import terminal


def command(
    documents: Annotated[
        list[str] | None, typer.Argument(help="Ids, FILE:LINE, or FILE#ROW for Parquet; also of labelled rows.")
    ] = None,
    *,
    text: Annotated[list[str] | None, typer.Option(help="Text of a document; may be repeated.")] = None,
    file: Annotated[Path | None, typer.Option(help="List of ids, one per line, or jsonl with `id` or `text`.")] = None,
    where: Annotated[str, typer.Option("--in", help="Corpus or task in which ids are looked up.")] = "",
    reason: Annotated[str, typer.Option(help="Why; recorded in the certificate and the ledger.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Remove without a question.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed; change nothing.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Remove documents and all of their copies: raw data, labels, outputs, caches, DVC's cache and local remotes. Mark
    the registered versions that have learned from them, write a certificate, and show what will be trained again."""
    project = Project(params)
    listed = file.resolve() if file is not None else None
    with project.locked("forget"):
        settings = project.settings
        named = removal.wanted_texts(settings, documents or [], texts=text or [], file=listed, where=where)
        plan = removal.make_plan(settings, named)
        for line in removal.plan_lines(plan):
            terminal.say(line)
        if dry_run:
            return
        if not yes and not sys.stdin.isatty():
            raise ConfigError("headstart forget: nothing was removed; repeat the command with --yes")
        if not yes and not typer.confirm("Remove all of this?"):
            return
        certificate = removal.forget(settings, plan, named, reason=reason)
        tracked = {holder for path in plan.search.raw if (holder := tracked_by(path)) is not None}
        for path in sorted(path for path in tracked if not is_local_copy(path.as_posix())):
            add_folder(path)
        for line in certificate.read_text(encoding="utf-8").splitlines():
            terminal.say(line)
        stages = wanted(read_plan(pipeline_of(project), root=project.root))
        again = [stage for stage in stages if stage.reasons]
        terminal.say(f"{len(again)} stages will run at the next `headstart retrain`:")
        for stage in again:
            terminal.say(f"  {stage.name}: {stage.reasons[0]}")
        terminal.say(f"certificate: {os.path.relpath(certificate)}; commit it with data.dvc")
