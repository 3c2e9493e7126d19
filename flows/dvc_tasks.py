"""DVC stages as Prefect tasks.

A task runs `dvc repro --single-item STAGE` in a process group of its own. DVC decides whether the stage is up to date,
so Prefect's task cache is disabled. Output goes to the terminal and to Prefect's log line by line. Everything else
passes between the processes in files: the plan, and the error message of a `headstart` command.
"""

from __future__ import annotations

import math
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger
from prefect.states import Completed

from components.artifacts import flatten, read_json
from components.costs.history import History
from components.errors import ERROR_FILE, TransientError
from flows import processes
from flows.plan import Plan, Stage
from flows.repository import environment
from flows.terminal import BudgetError, StageError, terminal
from flows.tied import tied

#: Delays in seconds before the retries of a stage that has crashed.
RETRY_DELAYS_S = (5, 30, 120)
DVC = (sys.executable, "-m", "dvc")
#: DVC's messages about a stage that it did not run -> name of the task's final state; otherwise "Completed".
OUTCOMES = {
    re.compile(r"^Stage '.*' didn't change, skipping$"): "Skipped",
    re.compile(r"^Stage '.*' is cached - skipping run"): "Cached",
}
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


def is_retriable(task: Any, task_run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed task is retried: after a crash or a transient error, not if the user has to correct it."""
    error = state.result(raise_on_failure=False)
    return not (isinstance(error, StageError) and error.final)


@task(
    name="stage",
    task_run_name="{stage.name}",
    cache_policy=NO_CACHE,
    retry_condition_fn=is_retriable,
)
def run_stage(stage: Stage, root: Path) -> State[str]:
    """Reproduce one stage with DVC.

    Returns:
        A completed state. Its name and result are the outcome: Completed, Cached (the output of an earlier run was
        restored) or Skipped.

    Raises:
        StageError: the stage failed, with its error message.
    """
    usual = {one.stage: one.seconds for one in History(root).read()}.get(stage.name)
    terminal.begin(stage.name, reasons=stage.reasons, usual_s=usual)
    for reason in stage.reasons[:3]:
        _log(f"reason: {reason}")
    command = (*DVC, "repro", "--single-item", *(["--force"] if stage.force else []), stage.address)
    left = math.inf if stage.budget_until is None else stage.budget_until - time.monotonic()
    stop = BudgetError(
        f"{stage.name}: stopped, because the run has used up its budget (params.yaml: budget); "
        "the outputs so far are kept, and the next run resumes this stage"
    )
    limit_s, beyond = (left, stop) if left < stage.limit_s else (stage.limit_s, None)
    lines = run_command(command, source=stage.name, root=root, limit_s=limit_s, beyond=beyond)
    outcome = next((name for text, name in OUTCOMES.items() if any(map(text.match, lines))), "Completed")
    _publish_metrics(stage, root)
    return Completed(name=outcome, message=f"{stage.name}: {outcome.lower()}", data=outcome)


def stage_task(stage: Stage) -> Task[[Stage, Path], State[str]]:
    """`run_stage` with the stage's name and number of retries."""
    return run_stage.with_options(name=stage.group, retries=stage.retries, retry_delay_seconds=list(RETRY_DELAYS_S))


@task(name="up to date", task_run_name="{stage.name}", cache_policy=NO_CACHE)
def skip_stage(stage: Stage) -> State[str]:
    """The task of a stage that is up to date: it appears in Prefect and runs nothing."""
    return Completed(name="Skipped", message=f"{stage.name}: up to date", data="Skipped")


@task(name="data version", cache_policy=NO_CACHE)
def add_data(root: Path) -> None:
    """Run `dvc add data`, so that data.dvc identifies the data of the run."""
    _say("new version of data/: dvc add", source="data")
    add_folder(Path("data"), root=root)


def add_folder(path: Path, *, root: Path) -> None:
    """Run `dvc add` for a file or folder, so that its .dvc file identifies its content.

    Raises:
        StageError: the command failed.
    """
    # With --quiet DVC would not say why it failed.
    run_command((*DVC, "add", str(path)), source=path.name, root=root, limit_s=6 * 3600, show=False)


def read_plan(pipeline: Path, *, root: Path) -> Plan:
    """The plan of a dvc.yaml, computed by `flows.plan` in a separate process; see there for `Plan.problem`.

    Raises:
        StageError: the process crashed.
    """
    with tempfile.TemporaryDirectory(prefix="headstart-") as folder:
        file = Path(folder) / "plan.json"
        command = (sys.executable, "-m", "flows.plan", str(pipeline.relative_to(root)), str(file))
        run_command(command, source="dvc status", root=root, limit_s=3600, show=False)
        return Plan.from_json(file.read_text(encoding="utf-8"))


def run_headstart(*arguments: str, source: str, root: Path, limit_s: float = 24 * 3600, show: bool = True) -> list[str]:
    """Run a command of `headstart`, and show its output or return it only; arguments as of `run_command`.

    Raises:
        StageError: the command failed, with its error message.
    """
    # After a kill of this process nobody reads the result.
    command = tied((sys.executable, "-m", "components.cli", *arguments), number=signal.SIGTERM)
    return run_command(command, source=source, root=root, limit_s=limit_s, show=show)


def run_command(
    command: Sequence[str],
    *,
    source: str,
    root: Path,
    limit_s: float,
    show: bool = True,
    beyond: StageError | None = None,
) -> list[str]:
    """Run a command in the repository.

    Args:
        command: program and arguments.
        source: name of the stage, in front of each line and in the error message.
        root: of the repository; the working directory.
        limit_s: time limit in seconds.
        show: whether to print the lines.
        beyond: error if the time limit is exceeded; default: one that names the limit of dvc.yaml.

    Returns:
        The lines of its output.

    Raises:
        StageError: the command failed or exceeded its time limit. The message is printed here, once per attempt.
    """
    lines: list[str] = []

    def relay(line: str) -> None:
        lines.append(line)
        if show and not _NOISE.match(line) and not line.startswith("ERROR: failed to reproduce"):
            _say(line, source=source)

    with tempfile.TemporaryDirectory(prefix="headstart-") as folder:
        message = Path(folder) / "error"
        variables = {**environment(root), ERROR_FILE: str(message)}
        try:
            code = processes.run(list(command), directory=root, environment=variables, limit_s=limit_s, on_line=relay)
            if not code:
                return lines
            error = failure(source, code, lines, message=message.read_text("utf-8") if message.is_file() else "")
        except processes.CommandTimeoutError:
            minutes = f"{limit_s / 60:g} minutes"
            limit = f"{source}: exceeded its time limit of {minutes} (dvc.yaml: meta.minutes)"
            error = beyond or StageError(limit, final=False)
    terminal.error(str(error))
    _log(str(error))
    raise error


def _say(line: str, *, source: str) -> None:
    terminal.say(line, source=source)
    _log(line)


def _log(line: str) -> None:
    try:
        get_run_logger().info(line)
    except MissingContextError:
        return


def failure(name: str, code: int, lines: Sequence[str], *, message: str = "") -> StageError:
    """The error of a command that has failed.

    Args:
        name: of the stage.
        code: exit code of the command, which may be `dvc repro`.
        lines: its output.
        message: content of the file `ERROR_FILE`. An error with such a message has to be corrected by the user, so it
            is final, unless the exit code is that of a `TransientError`. So is an error of DVC itself, about dvc.yaml
            or the data. A killed or crashed stage is not.
    """
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
    own = (line for line in reversed(lines) if line.strip() and not _NOISE.match(line) and not _REFUSED.match(line))
    how = f"ended by signal {-stage_code}" if stage_code < 0 else f"exit code {stage_code}"
    return StageError(f"{name}: {next(own, 'no output')} ({how})", final=False)


def _publish_metrics(stage: Stage, root: Path) -> None:
    """Create a Prefect artifact with the stage's metrics as a table; nothing outside of a flow run."""
    if TaskRunContext.get() is None:
        return
    contents = [read_json(root / path, made_by=stage.name, missing_ok=True) for path in stage.metrics]
    rows = {
        name: f"{value:.4g}" if isinstance(value, float) else str(value)
        for content in contents
        for name, value in flatten(content)
        if isinstance(value, int | float | str)
    }
    if rows:
        key = re.sub(r"[^a-z0-9]+", "-", stage.name.lower()).strip("-")
        table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
        create_markdown_artifact(
            f"| metric | value |\n|---|---|\n{table}\n", key=key, description=f"{stage.name}: metrics"
        )
