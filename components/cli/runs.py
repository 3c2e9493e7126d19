"""Commands about runs: stages, studies, and those that programs of `flows` execute."""

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


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def study(context: typer.Context) -> None:
    """Run a study on a finished run: `benefits`, `layers`, `which-source` ... (`headstart study` lists them)."""
    from components.studies import command

    command.study(context.args)


#: Subcommand -> help text of the programs of `flows`. Each is a module that is executed in place of this process, so
#: that this one does not import Prefect.
FLOWS = {
    "fit": "Train and serve a model from labelled data: `init` if there is no params.yaml, then `retrain`.",
    "retrain": "Run every stage that is not up to date, from raw data to the promoted classifier.",
    "plan": "Show what a run would do, why, and what it would cost; nothing is run.",
    "sync": "Pull code and data, retrain, push and commit the result.",
    "schedule": "Retrain on a cron schedule; or only create the notifications of failed and late runs (--notify).",
    "forget": "Remove documents from data, labels, outputs and caches, with a certificate.",
    "ui": "Serve the pages of the project on 127.0.0.1 until stopped: runs, champion, errors, labelling, lineage.",
    "lectures": "Measure what lectures on transfer learning say, and write one page about it.",
    "drill": "Break things on purpose on a throw-away copy of a tiny project, and report what follows.",
    "gc": "Delete old checkpoints, caches, versions and logs; without --yes, only list them.",
    "label": "Append the answers in a file to the file of labels, with who and when; --undo takes them back.",
    "promote": "Compare the challenger with the champion again, or choose the champion: --version V --reason TEXT.",
}
#: Subcommand -> its module if the names differ: the module `retrain` is the flow, which imports Prefect.
PROGRAMS = {"retrain": "retrain_command", "plan": "costs"}


def _hand_over(verb: str, help_text: str) -> None:
    @app.command(
        verb,
        help=help_text,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def run(context: typer.Context) -> None:
        run_flow(PROGRAMS.get(verb, verb), context.args)


for _verb, _help in FLOWS.items():
    _hand_over(_verb, _help)
