"""Register and promote the models of the last run without training, after a change of the rule or of the registry."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from flows import summary
from flows.command import PARAMS, ParamsFile, main
from flows.dvc_tasks import stage_task
from flows.repository import find_root, locked, pipeline_of
from flows.retrain import read_plan
from flows.terminal import terminal

STAGES = ("register", "promote")


@flow(name="promote", flow_run_name="promote {params}")
def promote(params: str = "params.yaml") -> None:
    """Run the stages that act on the registry.

    Raises:
        ConfigError: the settings or dvc.yaml are wrong.
        StageError: the registry cannot be reached, or there is nothing to register.
    """
    file = Path(params).resolve()
    root = find_root(file.parent)
    with locked(root, what=f"promote {params}", say=terminal.say):
        plan = read_plan(pipeline_of(file, root=root), root=root)
        plan.refuse_problem()
        for stage in plan.stages:
            if stage.name in STAGES:
                stage_task(stage)(stage, root)
    for line in summary.decisions(root=root, params=file):
        terminal.say(line)


def command(*, params: ParamsFile = PARAMS) -> None:
    """Register the existing models and compare the challenger with the champion, without training."""
    promote(str(params))


if __name__ == "__main__":
    main(command)
