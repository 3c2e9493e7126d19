"""Why a stage would run: `headstart why [STAGE]`. Nothing is run or changed."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from components.cli.common import PARAMS, ParamsFile
from components.core.errors import ConfigError, nearest
from components.pipeline.identity import STAGE as IDENTITY
from flows.plan import Plan, Stage, read_plan
from flows.repository import Project, active_run, pipeline_of


def explain(plan: Plan, names: Iterable[str] = ()) -> Iterator[str]:
    """The reasons for which stages would run, or that they are up to date.

    Args:
        names: stages (`pretrain`, all of its items) or items (`pretrain@ulmfit`); by default all that would run.

    Raises:
        ConfigError: unknown stage.
    """
    stages = list(_named(plan, list(names)))
    if not names:
        stages = [stage for stage in plan.stages if stage.reasons]
        if not stages:
            yield "every stage is up to date"
    # The reasons of a stage already include changes of its identity.
    out_of_date = {stage.name for stage in plan.stages if stage.reasons and stage.name != IDENTITY}
    for stage in stages:
        above = sorted((plan.ancestors({stage.name}) - {stage.name}) & out_of_date)
        if stage.reasons:
            yield f"{stage.name}: out of date"
        elif stage.always:
            yield f"{stage.name}: runs every time; it acts on the registry and is idempotent"
        elif above:
            yield f"{stage.name}: up to date, unless an output of these stages changes: {', '.join(above)}"
        else:
            yield f"{stage.name}: up to date"
        yield from (f"  {reason}" for reason in stage.reasons)


def _named(plan: Plan, names: Sequence[str]) -> Iterator[Stage]:
    for name in names:
        stages = [stage for stage in plan.stages if name in (stage.name, stage.group)]
        if not stages:
            valid = list(dict.fromkeys(name for stage in plan.stages for name in (stage.group, stage.name)))
            raise ConfigError(f"unknown stage {name!r}{nearest(name, valid)}")
        yield from stages


def plan_to_explain(project: Project) -> Plan:
    """The plan of a settings file, with the files that have changed.

    Raises:
        ConfigError: a run is changing the outputs, or the settings or dvc.yaml are wrong.
    """
    # Before dvc.yaml is written anew.
    if run := active_run(project.root):
        raise ConfigError(f"{run} is changing the outputs of this repository; repeat the command when it has ended")
    plan = read_plan(pipeline_of(project), root=project.root, files=True)
    plan.refuse_problem()
    return plan


def command(
    stage: Annotated[
        str, typer.Argument(help="Stage, with an item as STAGE@ITEM; all that would run by default.")
    ] = "",
    *,
    params: ParamsFile = PARAMS,
) -> None:
    """Explain why stages would run: function and file, setting, data file, library."""
    plan = plan_to_explain(Project(params))
    if plan.data == "changed":
        print("data: new version; `headstart retrain` records it first")
    for line in explain(plan, [stage] if stage else []):
        print(line)
