"""Commands of a run, of DVC and of `headstart`, each in a process group, with output to the terminal and to Prefect's
log. Everything else passes between the processes in files. This module does not import Prefect."""

import re
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.core.errors import ERROR_FILE, TransientError
from flows import processes, warm
from flows.bound import bound
from flows.flow_run import log, show_progress
from flows.plan import Plan
from flows.repository import environment
from flows.terminal import PROGRESS, BudgetError, StageError, terminal

DVC = (sys.executable, "-m", "dvc")
#: Last lines of a crashed command that are shown.
TAIL = 20
#: DVC's message about a stage whose command failed.
_FAILED = re.compile(r"^ERROR: failed to reproduce .*, exited with (-?\d+)$")
#: DVC's message about a stage that it could not run.
_REFUSED = re.compile(r"^ERROR: (failed to reproduce '[^']*': )?")
#: Other lines of DVC, which are not shown.
_NOISE = re.compile(
    r"^(Running stage '.*':|> .*|(Generating|Updating) lock file '.*'|Use `dvc push` .*|"
    r"To track the changes with git, run:|To enable auto staging, run:|"
    r"\s+git add .*|\s+dvc config core.autostage true|)$"
)


def add_folder(path: Path, *, root: Path) -> None:
    """Run `dvc add` for a file or folder, so that its .dvc file identifies its content.

    Raises:
        StageError: the command failed.
    """
    run_dvc("add", {"path": str(path)}, source=path.name, root=root, limit_s=6 * 3600, show=False)


def read_plan(pipeline: Path, *, root: Path) -> Plan:
    """The plan of a dvc.yaml, computed by DVC's process; see `flows.plan` for `Plan.problem`.

    Raises:
        StageError: the process crashed.
    """
    arguments = {"pipeline": str(pipeline.relative_to(root))}
    _, plan = run_dvc("plan", arguments, source="dvc status", root=root, limit_s=3600, show=False)
    return Plan.of(plan)


def run_headstart(*arguments: str, source: str, root: Path, limit_s: float = 24 * 3600, show: bool = True) -> list[str]:
    """Run a command of `headstart`, and show its output or return it only; arguments as of `run_command`.

    Raises:
        StageError: the command failed, with its error message.
    """
    command: Sequence[str] = (sys.executable, "-m", warm.CLI, *arguments)
    if not warm.is_serving():
        # After a kill of this process nobody reads the result.
        command = bound(command, number=signal.SIGTERM)
    return run_command(command, source=source, root=root, limit_s=limit_s, show=show)


def run_command(
    command: Sequence[str], *, source: str, root: Path, limit_s: float, show: bool = True, **options: Any
) -> list[str]:
    """Run a command in the repository.

    Args:
        source: name of the stage, in front of each line and in the error message.
        options: `beyond`, `variables` and `stays` of `_attend`.

    Returns:
        The lines of its output.

    Raises:
        StageError: the command failed or exceeded its time limit. The message is printed here, once per attempt.
    """

    def execute(variables: Mapping[str, str], on_line: Callable[[str], None]) -> tuple[int, None]:
        given = {**environment(root), **variables}
        return processes.run(list(command), directory=root, environment=given, limit_s=limit_s, on_line=on_line), None

    return _attend(execute, source=source, limit_s=limit_s, show=show, **options)[0]


def run_dvc(
    action: str,
    arguments: Mapping[str, Any],
    *,
    source: str,
    root: Path,
    limit_s: float,
    show: bool = True,
    **options: Any,
) -> tuple[list[str], Any]:
    """Let DVC's process do something (`flows.dvc_process`); returns the lines of its output and the result. Other
    arguments and errors as of `run_command`."""

    def execute(variables: Mapping[str, str], on_line: Callable[[str], None]) -> tuple[int, Any]:
        with processes.working(root, environment=environment(root)) as dvc:
            return dvc.call(action, arguments, variables=variables, limit_s=limit_s, on_line=on_line)

    return _attend(execute, source=source, limit_s=limit_s, show=show, **options)


def _attend(
    execute: Callable[[Mapping[str, str], Callable[[str], None]], tuple[int, Any]],
    *,
    source: str,
    limit_s: float,
    show: bool,
    beyond: StageError | None = None,
    variables: Mapping[str, str] | None = None,
    stays: bool = False,
) -> tuple[list[str], Any]:
    """The lines of output of what `execute` runs, and its result.

    Args:
        execute: variables and a function for each line -> exit code and result.
        beyond: error if the time limit is exceeded; default: one that names the limit of dvc.yaml.
        variables: added to the environment.
        stays: whether the lines stay on a terminal.
    """
    lines: list[str] = []

    def relay(line: str) -> None:
        lines.append(line)
        if show and not _NOISE.match(line) and not line.startswith("ERROR: failed to reproduce"):
            say(line, source=source, stays=stays)

    with tempfile.TemporaryDirectory(prefix="headstart-") as folder:
        message = Path(folder) / "error"
        try:
            code, result = execute({**(variables or {}), ERROR_FILE: str(message)}, relay)
            if not code:
                return lines, result
            written = message.read_text("utf-8") if message.is_file() else ""
            error = failure(source, code, lines, message=written)
            if show and not written and not isinstance(error, BudgetError):
                for line in lines[-TAIL:]:
                    terminal.trace(line, source=source)
        except processes.CommandTimeoutError:
            minutes = f"{limit_s / 60:g} minutes"
            limit = f"{source}: exceeded its time limit of {minutes} (dvc.yaml: meta.minutes)"
            error = beyond or StageError(limit, final=False)
        except processes.CommandStoppedError:
            raise StageError(f"{source}: ended with the run", final=True) from None
    terminal.error(str(error))
    log(str(error))
    raise error


def say(line: str, *, source: str, stays: bool = False) -> None:
    """Print a line and write it to Prefect's log, or show the progress that it tells."""
    terminal.say(line, source=source, stays=stays)
    if (told := PROGRESS.search(line)) is not None:
        show_progress(source, float(told["percent"]))
    else:
        log(line)


def failure(name: str, code: int, lines: Sequence[str], *, message: str = "") -> StageError:
    """The error of a command that has failed. `message`: content of the file `ERROR_FILE`; an error with one is final,
    as one of DVC itself, unless the exit code means a `TransientError`. A killed or crashed stage is not."""
    if code == BudgetError.exit_code:
        said = (line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: "))
        return BudgetError(f"{name}: {next(said, 'the budget is used up')}")
    failed = next((match for line in reversed(lines) if (match := _FAILED.match(line))), None)
    if message:
        return StageError(f"{name}: {message}", final=(int(failed[1]) if failed else code) != TransientError.exit_code)
    refused = [number for number, line in enumerate(lines) if _REFUSED.match(line)]
    if refused and failed is None:
        text = "\n".join(lines[refused[-1] :]).rstrip()
        return StageError(f"{name}: {_REFUSED.sub('', text)}", final=True)
    stage_code = int(failed[1]) if failed else code
    remaining = (
        line for line in reversed(lines) if line.strip() and not _NOISE.match(line) and not _REFUSED.match(line)
    )
    how = f"ended by signal {-stage_code}" if stage_code < 0 else f"exit code {stage_code}"
    return StageError(f"{name}: {next(remaining, 'no output')} ({how})", final=False)
