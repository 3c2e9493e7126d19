"""`infra/local-stack`: up, run, status, down, env."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from components.core.errors import HeadstartError
from infra.stack import compose, processes, stack
from infra.stack.params import commit_params

FOLDER = Path(".headstart/stack")
PARAMS = Path(__file__).parents[1] / "local-stack-params.yaml"
#: Default command of `run`: a flow run on the Prefect worker.
FLOW = ["prefect", "deployment", "run", "retrain/retrain", "--watch"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

Folder = Annotated[Path, typer.Option("--folder", help="Folder of logs, databases and the clone.")]
Params = Annotated[
    Path | None,
    typer.Option("--params", help="File of keys that override params.yaml; with the default, a run takes minutes."),
]
Nodes = Annotated[int, typer.Option("--nodes", min=1, help="Ray nodes beside the head, each with a folder of its own.")]
AsItIs = Annotated[bool, typer.Option("--as-it-is", help="Use params.yaml of the branch without overrides.")]


@app.command()
def up(*, folder: Folder = FOLDER, params: Params = PARAMS, as_it_is: AsItIs = False, nodes: Nodes = 1) -> None:
    """Start all services and leave them running."""
    running = _up(folder, None if as_it_is else params, nodes)
    print(f"\ninfra/local-stack run -- COMMAND uses it, infra/local-stack down stops it; logs in {running.layout.logs}")


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    command: Annotated[list[str] | None, typer.Argument(help="Command and arguments; default: run the flow.")] = None,
    *,
    folder: Folder = FOLDER,
    params: Params = PARAMS,
    as_it_is: AsItIs = False,
    nodes: Nodes = 1,
) -> None:
    """Run a command in the workspace with the running services, or with services that are started for this command."""
    try:
        running = stack.attach(folder)
        ours = False
    except stack.StackError:
        running = _up(folder, None if as_it_is else params, nodes)
        ours = True
    try:
        code = _call(command, running) if command else _flow(running)
    finally:
        if ours:
            stack.down(folder)
    sys.exit(code)


@app.command()
def down(*, folder: Folder = FOLDER) -> None:
    """Stop the services that `up` has started."""
    stack.down(folder)


@app.command()
def status(*, folder: Folder = FOLDER) -> None:
    """Print which services are running; the exit code is 1 unless all are."""
    sys.exit(0 if stack.status(folder) else 1)


@app.command()
def env() -> None:
    """Print .env.example with random secrets: `infra/local-stack env > infra/.env` for compose."""
    text = compose.ENV_EXAMPLE.read_text(encoding="utf-8")
    filled = compose.fill_secrets(compose.read_env(compose.ENV_EXAMPLE))
    for line in text.splitlines():
        name = line.partition("=")[0]
        print(f"{name}={filled[name]}" if name in filled else line)


def _up(folder: Path, params: Path | None, nodes: int) -> stack.Stack:
    def prepare(running: stack.Stack) -> None:
        stack.push_data(running)
        if params is not None:
            commit_params(running, params)
            running.say(f"origin      {running.layout.origin}, with the overrides of {params.name} in params.yaml")

    running = stack.up(folder, nodes=nodes, prepare=prepare)
    stack.note_uncommitted(running.values, print)
    return running


def _call(
    words: list[str], running: stack.Stack, *, log: Path | None = None, meanwhile: Callable[[], None] = lambda: None
) -> int:
    print(f"$ {shlex.join(words)}", flush=True)
    with log.open("ab") if log else nullcontext() as output:
        try:
            child = subprocess.Popen(
                words,
                env=running.client_environment(),
                cwd=running.layout.workspace,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise stack.StackError(f"{words[0]}: cannot be run ({error.strerror})") from error
        try:
            while (code := child.poll()) is None:
                meanwhile()
                time.sleep(0.2)
            meanwhile()
            return code
        except BaseException:
            os.killpg(child.pid, signal.SIGTERM)
            raise


def _flow(running: stack.Stack) -> int:
    """Run the deployment of the flow, printing the Prefect worker's output; returns the exit code."""
    relay = processes.Relay(running.layout.log("prefect-worker"))
    code = _call(FLOW, running, log=running.layout.log("flow"), meanwhile=relay.print)
    print(processes.last_lines(running.layout.log("flow"), 1).strip())
    if code == 0:
        # Makes the outputs available to other clones.
        code = _call(["dvc", "push", "--quiet"], running)
        for line in stack.stored(running):
            print(line)
    return code


def _interrupt(number: int, frame: FrameType | None) -> None:
    # An exception runs every `finally`, so SIGTERM stops the services as Ctrl-C does.
    raise SystemExit(128 + number)


def main() -> None:
    """Entry point of `infra/local-stack`."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        app()
    except HeadstartError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
