"""From raw data to a promoted classifier: the flow of `headstart retrain [--params experiments/full/params.yaml]`.

Runs the stages that are not up to date, in topological order. A second run in the same repository waits for the first.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from pathlib import Path

from prefect import flow

from components.core.errors import ConfigError
from components.pipeline.identity import STAGE as IDENTITY
from components.settings.loading import load_params
from flows import processes
from flows.budget import Spending
from flows.dvc_tasks import add_data, skip_stage, stage_task
from flows.execution import run_headstart
from flows.flow_run import begin_scheduled
from flows.plan import Plan
from flows.repository import data_to_pull, environment
from flows.run import (
    BEGUN,
    begin,
    check_space,
    conclude,
    has_changes,
    modules_of,
    registry_is_unchanged,
    upcoming,
    wanted,
)
from flows.telemetry import Monitor, monitored, run_name
from flows.terminal import terminal


@flow(name="retrain", flow_run_name=run_name)
def retrain(params: str = "params.yaml", rebuild: bool = False) -> dict[str, list[str]]:
    """Run every stage that is not up to date, in topological order.

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
    file = Path(params).resolve()
    begun = BEGUN.pop(file, None)
    with (
        nullcontext(begun) if begun else begin(file, rebuild=rebuild) as run,
        monitored(file, root=run.root) as monitor,
        ExitStack() as worker,
    ):
        plan = run.plan.result()
        worker.enter_context(processes.working(run.root, modules_of(plan), environment=environment(run.root)))
        if has_changes(plan):
            # Skipped if every stage is up to date: the check takes seconds, and these settings have passed it before.
            run_headstart("check", "--params", str(file.relative_to(run.root)), source="check", root=run.root)
        plan.refuse_problem()
        check_space(plan, params=file, root=run.root)
        if plan.data == "changed" and data_to_pull(run.root).exists():
            raise ConfigError("data.dvc names data that has not been pulled; run `headstart sync`")
        if plan.data == "changed":
            add_data(run.root)
        settled = registry_is_unchanged(file, root=run.root)
        spending = Spending(load_params(file), root=run.root)
        ahead = upcoming(plan, settled=settled)
        spending.refuse(ahead)
        spending.expect(ahead)
        monitor.expect(spending.remaining)
        if ahead:
            terminal.say(str(spending.remaining), source="run", stays=True)
        done = run_stages(plan, root=run.root, monitor=monitor, settled=settled, spending=spending)
        conclude(done, spending.params, monitor, file=file, root=run.root)
        terminal.say(f"run:     {monitor.name} ({monitor.id})")
        return done


def run_stages(
    plan: Plan, *, root: Path, monitor: Monitor, settled: bool = False, spending: Spending | None = None
) -> dict[str, list[str]]:
    """Run the stages of a plan that are wanted and not up to date.

    Args:
        settled: whether the registry is unchanged since the last run; the stages that always run then need not run.

    Returns:
        Outcome (Completed, Cached, Skipped) -> names of the wanted stages.
    """
    done: dict[str, list[str]] = {"Completed": [], "Cached": [], "Skipped": []}
    changed: set[str] = set()
    for stage in wanted(plan):
        # Stages downstream of one that ran are checked by DVC, which skips them if its output is unchanged.
        if stage.reasons or (stage.always and not settled) or changed.intersection(stage.needs):
            limited = spending.begin(stage) if spending else stage
            started = time.monotonic()
            with monitor.stage(stage) as recorded:
                outcome = str(stage_task(limited)(limited, root, return_state=True).result())
                recorded.append(outcome)
            if spending:
                spending.end(stage, time.monotonic() - started, completed=outcome == "Completed")
            if outcome != "Skipped":
                # The reasons of the stages downstream of `identity` already include the new identities.
                changed |= {stage.name} - {IDENTITY}
                left = str(spending.remaining) if spending else ""
                terminal.done(stage.name, outcome.lower(), time.monotonic() - started, left=left)
        else:
            outcome = str(skip_stage.with_options(name=stage.group)(stage, return_state=True).result())
        done[outcome].append(stage.name)
        if outcome == "Skipped":
            terminal.done(stage.name, "up to date")
    return done
