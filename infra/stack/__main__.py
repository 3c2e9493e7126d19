"""`infra/local-stack`: run, env."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
import yaml

from components.core.errors import HeadstartError
from components.settings.loading import load_params, read_file
from infra.stack import compose, processes, stack


def merged(base: Any, over: Any) -> Any:
    """`base` with the keys of `over`; mappings are merged recursively, other values replaced."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return base | {key: merged(base.get(key), value) for key, value in over.items()}


def overlay(params: Path, over: Path) -> None:
    """Override keys of the file `params` by keys of the file `over`, and check the result.

    Raises:
        ConfigError: `over` is missing or no YAML mapping, or the result is invalid.
    """
    keys = read_file(over)
    base = yaml.safe_load(params.read_text(encoding="utf-8"))
    params.write_text(yaml.safe_dump(merged(base, keys), sort_keys=False, allow_unicode=True), encoding="utf-8")
    load_params(params)


def commit_params(services: stack.Stack, over: Path) -> None:
    """Override keys of params.yaml by keys of `over` in a clone of the origin, commit and push."""
    clone, branch = services.layout.folder / "clone", services.values["HEADSTART_BRANCH"]
    stack.git("clone", "--quiet", "--branch", branch, str(services.layout.origin), str(clone))
    overlay(clone / "params.yaml", over)
    who = ("-c", "user.name=local-stack", "-c", "user.email=local-stack@localhost")
    message = "Settings of the local stack"
    stack.git(*who, "commit", "--quiet", "--all", "--allow-empty", "--message", message, folder=clone)
    stack.git("push", "--quiet", "origin", f"HEAD:{branch}", folder=clone)


FOLDER = Path(".headstart/stack")
PARAMS = Path(__file__).parents[1] / "local-stack-params.yaml"
#: Default command of `run`: a flow run on the Prefect worker.
FLOW = ["prefect", "deployment", "run", "retrain/retrain", "--watch"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    command: Annotated[list[str] | None, typer.Argument(help="Command and arguments; default: run the flow.")] = None,
    *,
    folder: Annotated[Path, typer.Option(help="Folder of logs, databases and the clone.")] = FOLDER,
    params: Annotated[
        Path, typer.Option(help="File of keys that override params.yaml; with the default, a run takes minutes.")
    ] = PARAMS,
    as_it_is: Annotated[bool, typer.Option(help="Use params.yaml of the branch without overrides.")] = False,
    nodes: Annotated[int, typer.Option(min=1, help="Ray nodes beside the head, each with a folder of its own.")] = 1,
) -> None:
    """Start all services, run a command in the workspace, such as a shell, and stop them."""

    def prepare(services: stack.Stack) -> None:
        stack.push_data(services)
        if not as_it_is:
            commit_params(services, params)
            print(f"origin      {services.layout.origin}, with the overrides of {params.name} in params.yaml")

    with stack.started(folder, nodes=nodes, prepare=prepare) as services:
        code = _call(command, services) if command else _flow(services)
    sys.exit(code)


@app.command()
def env() -> None:
    """Print .env.example with random secrets: `infra/local-stack env > infra/.env` for compose."""
    text = compose.ENV_EXAMPLE.read_text(encoding="utf-8")
    filled = compose.fill_secrets(compose.read_env(compose.ENV_EXAMPLE))
    for line in text.splitlines():
        name = line.partition("=")[0]
        print(f"{name}={filled[name]}" if name in filled else line)


def _call(
    words: list[str], services: stack.Stack, *, log: Path | None = None, meanwhile: Callable[[], None] = lambda: None
) -> int:
    print(f"$ {shlex.join(words)}", flush=True)
    environment, folder = services.client_environment(), services.layout.workspace
    with log.open("ab") if log else nullcontext() as output:
        try:
            # In this session, so that a shell has the terminal; what it leaves behind ends with the stack.
            child = subprocess.Popen(words, env=environment, cwd=folder, stdout=output, stderr=output)
        except OSError as error:
            raise stack.StackError(f"{words[0]}: cannot be run ({error.strerror})") from error
        try:
            while (code := child.poll()) is None:
                meanwhile()
                time.sleep(0.2)
            meanwhile()
            return code
        except BaseException:
            child.terminate()
            raise


def _flow(services: stack.Stack) -> int:
    """Run the deployment of the flow, printing the Prefect worker's output; returns the exit code."""
    relay = processes.Relay(services.layout.log("prefect-worker"))
    code = _call(FLOW, services, log=services.layout.log("flow"), meanwhile=relay.print)
    print(processes.last_lines(services.layout.log("flow"), 1).strip())
    # Makes the outputs available to other clones.
    return code or _call(["dvc", "push", "--quiet"], services)


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
