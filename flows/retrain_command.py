"""From raw data to a promoted classifier: `headstart retrain`, which runs the flow `retrain` in this process."""

from contextlib import chdir
from pathlib import Path
from typing import Annotated, Any

import typer

from components.cli.common import PARAMS, ParamsFile
from components.settings.loading import load_params
from flows.repository import find_root
from flows.server import server
from flows.terminal import terminal

Rebuild = Annotated[
    bool, typer.Option("--rebuild", help="Start corpora, vocabularies and adapted models anew, as in an empty folder.")
]
#: What Ctrl-C prints.
INTERRUPTED = (
    "stopped by Ctrl-C; the outputs of the stages that have ended and the checkpoints of the one that was stopped are "
    "kept: `headstart retrain` goes on there"
)
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print every line of the stages, as in a log.")]


def command(
    *,
    params: ParamsFile = PARAMS,
    rebuild: Rebuild = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print warnings, decisions and errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as a JSON object on a line.")] = False,
    verbose: Verbose = False,
    brief: Annotated[bool, typer.Option("--brief", help="Print one score for a task in place of the table.")] = False,
) -> None:
    """Run every stage that is not up to date, from raw data to the promoted classifier."""
    if quiet + as_json + verbose > 1:
        raise typer.BadParameter("give one of --quiet, --json and --verbose")
    terminal.style = "quiet" if quiet else "json" if as_json else "verbose" if verbose else "text"
    run(params, rebuild=rebuild, brief=brief and not verbose)


def run(params: Path, **options: Any) -> None:
    """Run the flow `retrain` in this process; options and errors as of the flow."""
    file = params.resolve()
    with chdir(find_root(file.parent)):
        load_params(file)  # wrong ones are refused before a repository is made
    with server():
        from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

        from flows.retrain import retrain

        # The end of a run would wait for the thread that sends signs of life, which are for runs of a schedule.
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            retrain(str(params), **options)
