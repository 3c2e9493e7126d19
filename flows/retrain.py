"""The flows `retrain` and `promote` of a Prefect server: of a schedule, or of the server that `PREFECT_API_URL` names.

Without a server `headstart retrain` and `headstart promote` do the same (`flows.stages`).
"""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from flows.dvc_tasks import TASKS
from flows.flow_run import begin_scheduled
from flows.stages import act_on_registry, run_pipeline
from flows.telemetry import run_name


@flow(name="retrain", flow_run_name=run_name)
def retrain(params: str = "params.yaml", rebuild: bool = False) -> dict[str, list[str]]:
    """Run every stage that is not up to date, in topological order. A second run in the same repository waits for the
    first.

    Args:
        rebuild: whether corpora, vocabularies and adapted models start anew instead of from their last state.

    Returns:
        Outcome (Completed, Cached, Skipped) -> names of the stages.

    Raises:
        ConfigError: the settings or dvc.yaml are wrong; nothing has run.
        DiskSpaceError: there is too little disk space; nothing has run.
        StageError: a stage failed; the outputs of earlier stages are kept, and the next run resumes there.
    """
    begin_scheduled()
    return run_pipeline(Path(params).resolve(), engine=TASKS, rebuild=rebuild)


@flow(name="promote", flow_run_name=run_name)
def promote(params: str = "params.yaml") -> None:
    """Run the stages that act on the registry; errors as of `flows.stages.act_on_registry`."""
    act_on_registry(Path(params), engine=TASKS)
