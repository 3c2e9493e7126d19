"""DVC stages as Prefect tasks.

A task runs `dvc repro --single-item STAGE`. DVC decides whether the stage is up to date, so Prefect's task cache is
disabled.
"""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed

from components.core.artifacts import changing_data
from components.pipeline.costs import History
from flows.execution import DVC, add_folder, run_command, say
from flows.flow_run import log
from flows.plan import Stage
from flows.terminal import BudgetError, StageError, terminal

#: Delays in seconds before the retries of a stage that has crashed.
RETRY_DELAYS_S = (5, 30, 120)
#: DVC's messages about a stage that it did not run -> name of the task's final state; otherwise "Completed".
OUTCOMES = {
    re.compile(r"^Stage '.*' didn't change, skipping$"): "Skipped",
    re.compile(r"^Stage '.*' is cached - skipping run"): "Cached",
}


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
    usual = {each.stage: each.seconds for each in History(root).read()}.get(stage.name)
    terminal.begin(stage.name, reasons=stage.reasons, usual_s=usual)
    for reason in stage.reasons[:3]:
        log(f"reason: {reason}")
    command = (*DVC, "repro", "--single-item", *(["--force"] if stage.force else []), stage.address)
    left = math.inf if stage.budget_until is None else stage.budget_until - time.monotonic()
    stop = BudgetError(
        f"{stage.name}: stopped, because the run has used up its budget (params.yaml: budget); "
        "the outputs so far are kept, and the next run resumes this stage"
    )
    limit_s, beyond = (left, stop) if left < stage.limit_s else (stage.limit_s, None)
    lines = run_command(command, source=stage.name, root=root, limit_s=limit_s, beyond=beyond)
    outcome = next((name for text, name in OUTCOMES.items() if any(map(text.match, lines))), "Completed")
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
    say("new version of data/: dvc add", source="data")
    with changing_data(root):
        add_folder(Path("data"), root=root)
