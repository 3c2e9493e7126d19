"""The flows `retrain` and `promote` of Prefect, in which each stage that runs is a task. DVC decides what is up to
date, so Prefect's cache is disabled."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import task_run
from prefect.states import Completed

from flows import processes, stages
from flows.flow_run import begin_scheduled
from flows.plan import Stage
from flows.telemetry import run_name

#: Delays in seconds before the retries of a stage that has crashed.
RETRY_DELAYS_S = [5.0, 30.0, 120.0]


def is_retriable(task: Any, task_run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed task is repeated."""
    return stages.is_retriable(state.result(raise_on_failure=False))


@task(task_run_name="{stage.name}", cache_policy=NO_CACHE, retry_condition_fn=is_retriable)
def reproduce(stage: Stage) -> State[str]:
    """Reproduce one stage with DVC: a completed state, whose name and result are the outcome. Raises StageError: the
    stage failed."""
    if attempts := task_run.run_count - 1:
        # Not Prefect's delay, which no signal ends in a thread.
        processes.pause(RETRY_DELAYS_S[min(attempts, len(RETRY_DELAYS_S)) - 1])
    outcome = stages.reproduce(stage)
    return Completed(name=outcome, message=f"{stage.name}: {outcome.lower()}", data=outcome)


def run_stage(stage: Stage) -> str:
    """Reproduce a stage as a task of the current flow run, which is repeated as often as its `retries` say; returns the
    outcome.

    Raises:
        StageError: the stage failed, with its error message.
    """
    state = reproduce.with_options(name=stage.group, retries=stage.retries)(stage, return_state=True)
    return str(state.result())


@flow(name="retrain", flow_run_name=run_name)
def retrain(
    params: str = "params.yaml", rebuild: bool = False, brief: bool = False, goals: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Run every stage that is not up to date, in topological order, after other runs of the repository.

    Args:
        rebuild: whether corpora, vocabularies and adapted models start anew.
        brief: whether the summary has one score for a task in place of the table.
        goals: names or groups of stages, which are run with their dependencies in place of all stages; nothing is
            registered.

    Returns:
        Outcome (Completed, Cached, Skipped) -> names of the stages.

    Raises:
        ConfigError: the settings or dvc.yaml are wrong, or DiskSpaceError; nothing has run.
        StageError: a stage failed; earlier outputs are kept, and the next run resumes there.
    """
    begin_scheduled()
    return stages.run_pipeline(Path(params).resolve(), run=run_stage, rebuild=rebuild, brief=brief, goals=goals)


@flow(name="promote", flow_run_name=run_name)
def promote(params: str = "params.yaml") -> None:
    """Run the stages that act on the registry; errors as of `flows.stages.act_on_registry`."""
    stages.act_on_registry(Path(params), run=run_stage)
