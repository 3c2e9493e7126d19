"""From raw data to a promoted classifier: `headstart retrain`; the flow `retrain` if a Prefect server is configured,
else without Prefect."""

from typing import Annotated

import typer

from components.cli.common import PARAMS, ParamsFile
from flows.command import main
from flows.run import BEGUN, begin, is_up_to_date, skip_all
from flows.server import has_server
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
    file = params.resolve()
    # A configured server shows every run.
    shown = has_server()
    with begin(file, rebuild=rebuild, brief=brief and not verbose) as begun:
        if not shown and is_up_to_date(begun, file):
            skip_all(begun, file)
            return
        BEGUN[file] = begun
        if shown:
            from flows.retrain import retrain

            retrain(str(params), rebuild)
        else:
            from flows.stages import LOCAL, run_pipeline

            run_pipeline(file, engine=LOCAL, rebuild=rebuild)


if __name__ == "__main__":
    main(command, interrupted=INTERRUPTED)
