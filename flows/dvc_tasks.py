"""A DVC stage as a Prefect task.

The task runs `dvc repro --single-item STAGE` in a process group of its own; DVC decides whether there is anything to
do, so Prefect's task cache is off. Lines go to the terminal and to Prefect's log as they come.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
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

from components.errors import HeadstartError
from flows import processes
from flows.plan import Stage
from flows.repository import environment
from flows.terminal import terminal

#: Seconds before a stage that broke off is started again.
RETRY_DELAYS_S = (5, 30, 120)
DVC = (sys.executable, "-m", "dvc")
#: Names of the final state, told from what DVC prints; a stage that did its work is plainly "Completed".
OUTCOMES = {"didn't change, skipping": "Skipped", "is cached - skipping run": "Cached"}
#: DVC's own lines, which say nothing that the stage's do not.
_NOISE = re.compile(
    r"^(Running stage '.*':|> .*|(Generating|Updating) lock file '.*'|Use `dvc push` .*|"
    r"To track the changes with git, run:|To enable auto staging, run:|"
    r"\s+git add .*|\s+dvc config core.autostage true|)$"
)


class StageError(HeadstartError):
    """A stage ended with an error; the message is the stage's own. `final`: a second try cannot help."""

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


def worth_another_try(task: Any, task_run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed task runs again: not after an error that its user has to put right."""
    error = state.result(raise_on_failure=False)
    return not (isinstance(error, StageError) and error.final)


@task(
    name="stage",
    task_run_name="{stage.name}",
    cache_policy=NO_CACHE,
    retry_condition_fn=worth_another_try,
)
def run_stage(stage: Stage, root: Path) -> State[str]:
    """Reproduce one stage with DVC.

    Returns:
        A completed state whose name (and result) tells what DVC did: Completed, Cached (an earlier run's output was
        brought back) or Skipped.

    Raises:
        StageError: with the stage's last error message.
    """
    lines: list[str] = []
    command = (*DVC, "repro", "--single-item", stage.address)
    for reason in stage.reasons[:3]:
        _say(f"runs: {reason}", source=stage.name)
    code = _run(command, source=stage.name, root=root, limit_s=stage.limit_s, lines=lines)
    if code:
        raise failure(stage.name, code, lines)
    outcome = next((name for text, name in OUTCOMES.items() if any(text in line for line in lines)), "Completed")
    _publish(stage, root)
    return Completed(name=outcome, message=f"{stage.name}: {outcome.lower()}", data=outcome)


def stage_task(stage: Stage) -> Task[[Stage, Path], State[str]]:
    """`run_stage` under the stage's own name and with its number of retries."""
    return run_stage.with_options(name=stage.group, retries=stage.retries, retry_delay_seconds=list(RETRY_DELAYS_S))


@task(name="up to date", task_run_name="{stage.name}", cache_policy=NO_CACHE)
def leave_stage(stage: Stage) -> State[str]:
    """The task of a stage that is up to date: it only leaves its trace in Prefect."""
    return Completed(name="Skipped", message=f"{stage.name}: up to date", data="Skipped")


@task(name="data version", cache_policy=NO_CACHE)
def add_data(root: Path) -> None:
    """`dvc add data`: data.dvc names the version of the data that the run uses."""
    lines: list[str] = []
    _say("new version of data/: dvc add", source="data")
    code = _run((*DVC, "add", "--quiet", "data"), source="data", root=root, limit_s=6 * 3600, lines=lines)
    if code:
        raise failure("data", code, lines)


def run_headstart(*arguments: str, source: str, root: Path, limit_s: float = 24 * 3600) -> list[str]:
    """Run a command of `headstart`, relaying its lines; returns them.

    Raises:
        StageError: with the command's last error message.
    """
    lines: list[str] = []
    command = (sys.executable, "-m", "components.cli", *arguments)
    code = _run(command, source=source, root=root, limit_s=limit_s, lines=lines)
    if code:
        raise failure(source, code, lines)
    return lines


def _run(command: Iterable[str], *, source: str, root: Path, limit_s: float, lines: list[str]) -> int:
    def relay(line: str) -> None:
        lines.append(line)
        if not _NOISE.match(line) and not line.startswith("ERROR: failed to reproduce"):
            _say(line, source=source)

    try:
        return processes.run(
            list(command),
            directory=root,
            environment=environment(root),
            limit_s=limit_s,
            on_line=relay,
        )
    except processes.CommandTimeoutError:
        raise StageError(
            f"{source}: ended after its time limit of {limit_s / 60:g} minutes (dvc.yaml: meta.minutes)", final=False
        ) from None


def _say(line: str, *, source: str) -> None:
    terminal.say(line, source=source)
    try:
        get_run_logger().info(line)
    except MissingContextError:
        return


def failure(name: str, code: int, lines: list[str]) -> StageError:
    """The error of a command that ended with `code`, told in the command's own words.

    Exit code 2 (`headstart`: the user has to act) is final; so are DVC's own complaints about dvc.yaml or the data. A
    stage that was killed or crashed is not.
    """
    exited = next((match for line in reversed(lines) if (match := re.search(r"exited with (-?\d+)", line))), None)
    stage_code = int(exited.group(1)) if exited else code
    said = [line for line in lines if not line.startswith("ERROR: failed to reproduce")]
    if exited is None:
        # The stage never ran, and DVC says why: "ERROR: failed to reproduce 'dvc.yaml:a': parameters are missing".
        said += ["ERROR: " + line.partition("': ")[2] for line in lines if line not in said and "': " in line]
    starts = [number for number, line in enumerate(said) if line.startswith(("error: ", "ERROR: "))]
    if starts:
        message = "\n".join(said[starts[-1] :]).partition(": ")[2].rstrip()
    else:
        last = next((line for line in reversed(said) if line.strip() and not _NOISE.match(line)), "it said nothing")
        how = f"ended by signal {-stage_code}" if stage_code < 0 else f"exit code {stage_code}"
        message = f"{last} ({how})"
    return StageError(f"{name}: {message}", final=stage_code == 2 or (exited is None and bool(starts)))


def _publish(stage: Stage, root: Path) -> None:
    """The stage's metrics as a table in Prefect; outside of a run there is nobody to show it to."""
    if TaskRunContext.get() is None:
        return
    rows = dict(row for path in stage.metrics for row in _flat(_read(root / path)))
    if rows:
        key = re.sub(r"[^a-z0-9]+", "-", stage.name.lower()).strip("-")
        table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
        create_markdown_artifact(
            f"| metric | value |\n|---|---|\n{table}\n", key=key, description=f"{stage.name}: metrics"
        )


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _flat(value: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, float):
        yield prefix, f"{value:.4g}"
    elif isinstance(value, (int, str)):
        yield prefix, str(value)
