"""The flows `retrain` and `promote` of a Prefect server, in which a stage is a task; without a server `headstart
retrain` and `promote` do the same (`flows.stages`). DVC decides what is up to date, so Prefect's cache is disabled."""

from pathlib import Path
from typing import Any

from prefect import Task, flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed

from flows import stages
from flows.flow_run import begin_scheduled
from flows.plan import Stage
from flows.stages import Engine, act_on_registry, run_pipeline
from flows.telemetry import run_name


def is_retriable(task: Any, task_run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed task is repeated."""
    return stages.is_retriable(state.result(raise_on_failure=False))


@task(name="stage", task_run_name="{stage.name}", cache_policy=NO_CACHE, retry_condition_fn=is_retriable)
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


@flow(name="retrain", flow_run_name=run_name)
def retrain(params: str = "params.yaml", rebuild: bool = False) -> dict[str, list[str]]:
    """Run every stage that is not up to date, in topological order, after other runs of the repository. `rebuild`:
    whether corpora, vocabularies and adapted models start anew. Returns outcome (Completed, Cached, Skipped) -> names
    of the stages. Raises ConfigError: the settings or dvc.yaml are wrong, or DiskSpaceError; nothing has run. Raises
    StageError: a stage failed; earlier outputs are kept, and the next run resumes there."""
    begin_scheduled()
    return run_pipeline(Path(params).resolve(), engine=TASKS, rebuild=rebuild)


@flow(name="promote", flow_run_name=run_name)
def promote(params: str = "params.yaml") -> None:
    """Run the stages that act on the registry; errors as of `flows.stages.act_on_registry`."""
    act_on_registry(Path(params), engine=TASKS)
