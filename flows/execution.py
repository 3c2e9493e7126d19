"""Commands of a run, of DVC and of `headstart`, each in a process group, with output to the terminal and to Prefect's
log. Everything else passes between the processes in files. The working directory is the root of the repository. This
module does not import Prefect."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from components.core.artifacts import changing_data, text_in
from components.core.errors import ERROR_FILE, TransientError
from flows import processes, warm
from flows.bound import bound
from flows.flow_run import log, show_progress
from flows.repository import environment
from flows.terminal import PROGRESS, BudgetError, StageError, terminal

DVC = (sys.executable, "-m", "dvc")
#: How a message of DVC about an error begins.
DVC_ERROR = "ERROR: "
#: Time limit in seconds of a command of DVC without output.
DVC_S = 24 * 3600.0
#: Last lines of a crashed command that are shown.
TAIL = 20


def add_folder(path: Path) -> None:
    """Run `dvc add` for a file or folder, so that its .dvc file identifies its content.

    Raises:
        StageError: the command failed.
    """
    with changing_data(Path()):
        run_command((*DVC, "add", str(path)), source=path.name, limit_s=6 * 3600, show=False)


def ask_dvc(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of DVC without output, whose failure is no error of the run.

    Raises:
        TransientError: it has not ended within `DVC_S` seconds.
    """
    try:
        return subprocess.run(
            [*DVC, *arguments], env=environment(Path.cwd()), capture_output=True, text=True, timeout=DVC_S
        )
    except subprocess.TimeoutExpired as error:
        raise TransientError(
            f"{Path.cwd()}: dvc {arguments[0]}: no end within {DVC_S:g} seconds; repeat the command"
        ) from error


def run_headstart(*arguments: str, source: str, limit_s: float = 24 * 3600, show: bool = True) -> list[str]:
    """Run a command of `headstart`, and show its output or return it only; arguments as of `run_command`.

    Raises:
        StageError: the command failed, with its error message.
    """
    command: Sequence[str] = (sys.executable, "-m", "components.cli", *arguments)
    if not warm.is_serving():
        # After a kill of this process nobody reads the result.
        command = bound(command)
    return run_command(command, source=source, limit_s=limit_s, show=show)


def run_command(
    command: Sequence[str],
    *,
    source: str,
    limit_s: float,
    show: bool = True,
    beyond: StageError | None = None,
    variables: Mapping[str, str] | None = None,
    stays: bool = False,
) -> list[str]:
    """Run a command in the working directory, the root of the repository.

    Args:
        source: name of the stage, in front of each line and in the error message.
        beyond: error if the time limit is exceeded; default: one that names the limit of dvc.yaml.
        variables: added to the environment.
        stays: whether the lines stay on a terminal.

    Returns:
        The lines of its output.

    Raises:
        StageError: the command failed or exceeded its time limit. The message is printed here, once per attempt.
    """
    lines: list[str] = []

    def relay(line: str) -> None:
        lines.append(line)
        if show:
            say(line, source=source, stays=stays)

    with tempfile.TemporaryDirectory(prefix="headstart-") as folder:
        message = Path(folder) / "error"
        given = {**environment(root := Path.cwd()), **(variables or {}), ERROR_FILE: str(message)}
        try:
            code = processes.run(command, directory=root, environment=given, limit_s=limit_s, on_line=relay)
            if not code:
                return lines
            written = text_in(message)
            error = failure(source, code, lines, message=written, of_dvc=tuple(command[:3]) == DVC)
            if show and not written and not isinstance(error, BudgetError):
                for line in lines[-TAIL:]:
                    terminal.trace(line, source=source)
        except processes.CommandTimeoutError:
            minutes = f"{limit_s / 60:g} minutes"
            limit = f"{source}: exceeded its time limit of {minutes} (dvc.yaml: meta.minutes)"
            error = beyond or StageError(limit, final=False)
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


def failure(name: str, code: int, lines: Sequence[str], *, message: str = "", of_dvc: bool = False) -> StageError:
    """The error of a command that has failed. `message`: content of the file `ERROR_FILE`; an error with one is final,
    as one that a command of DVC names, unless the exit code means a `TransientError`. A killed or crashed command is
    not."""
    said = next((line for line in reversed(lines) if line.startswith("error: ")), "")
    if said and code == BudgetError.exit_code:
        return BudgetError(f"{name}: {said.removeprefix('error: ')}")
    if message:
        return StageError(f"{name}: {message}", final=code != TransientError.exit_code)
    refused = [number for number, line in enumerate(lines) if line.startswith(DVC_ERROR)]
    if of_dvc and refused:
        text = "\n".join(lines[refused[-1] :]).rstrip()
        return StageError(f"{name}: {text.removeprefix(DVC_ERROR)}", final=True)
    how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return StageError(f"{name}: {next(filter(str.strip, reversed(lines)), 'no output')} ({how})", final=False)
