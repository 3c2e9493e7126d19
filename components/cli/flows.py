"""Commands that programs of `flows` execute."""

from __future__ import annotations

import typer

from components.cli.common import run_flow

app = typer.Typer()


#: Subcommand -> help text of the Prefect flows. Each is a module of `flows` that is executed in place of this process,
#: so that this module does not import Prefect.
FLOWS = {
    "fit": "Train and serve a model from labelled data: `init` if there is no params.yaml, then `retrain`.",
    "retrain": "Run every stage that is not up to date, from raw data to the promoted classifier.",
    "sync": "Pull code and data, retrain, push and commit the result.",
    "schedule": "Retrain on a cron schedule; or only create the notifications of failed and late runs (--notify).",
    "forget": "Remove documents from data, labels, outputs and caches, with a certificate.",
    "ui": "Serve the pages of the project on 127.0.0.1 until stopped: runs, champion, errors, labelling, lineage.",
    "lectures": "Measure what lectures on transfer learning say on one run, and write one page about it.",
    "drill": "Break things on purpose on a throw-away copy of a tiny project, and report what follows.",
    "gc": "Delete old checkpoints, caches, versions and logs; without --yes, only list them.",
    "label": "Append the answers in a file to the file of labels, with who and when; --undo takes them back.",
    "promote": "Compare the challenger with the champion again, or choose the champion: --version V --reason TEXT.",
}
#: Subcommand -> its module if the names differ: the module `retrain` is the flow, which imports Prefect.
PROGRAMS = {"retrain": "retrain_command"}


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
