"""DVC stages as Prefect tasks. DVC decides whether a stage is up to date, so Prefect's task cache is disabled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed

from flows import stages
from flows.plan import Stage
from flows.stages import Engine


def is_retriable(task: Any, task_run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed task is repeated."""
    return stages.is_retriable(state.result(raise_on_failure=False))


@task(
    name="stage",
    task_run_name="{stage.name}",
    cache_policy=NO_CACHE,
    retry_condition_fn=is_retriable,
)
def run_stage(stage: Stage, root: Path) -> State[str]:
    """Reproduce one stage with DVC.

    Returns:
        A completed state, whose name and result are the outcome.

    Raises:
        StageError: the stage failed, with its error message.
    """
    outcome = stages.reproduce(stage, root)
    return Completed(name=outcome, message=f"{stage.name}: {outcome.lower()}", data=outcome)


def stage_task(stage: Stage) -> Task[[Stage, Path], State[str]]:
    """`run_stage` with the stage's name and number of retries."""
    return run_stage.with_options(
        name=stage.group, retries=stage.retries, retry_delay_seconds=list(stages.RETRY_DELAYS_S)
    )


@task(name="up to date", task_run_name="{stage.name}", cache_policy=NO_CACHE)
def skip_stage(stage: Stage) -> State[str]:
    """The task of a stage that is up to date: it appears in Prefect and runs nothing."""
    return Completed(name="Skipped", message=f"{stage.name}: up to date", data="Skipped")


#: Executes stages as tasks of the current flow run.
TASKS = Engine(
    run=lambda stage, root: str(stage_task(stage)(stage, root, return_state=True).result()),
    skip=lambda stage: skip_stage.with_options(name=stage.group)(stage),
    add_data=task(name="data version", cache_policy=NO_CACHE)(stages.add_data),
    concurrent=True,
)
