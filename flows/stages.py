"""The stages of a run, in topological order, and how a stage is executed: here, or as tasks of Prefect.

A stage is executed by `dvc repro --single-item STAGE`. DVC decides whether it is up to date.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from components.core.artifacts import changing_data
from components.core.errors import ConfigError
from components.pipeline.costs import History
from components.pipeline.identity import STAGE as IDENTITY
from components.settings.loading import load_params
from flows import processes, summary
from flows.budget import Spending
from flows.execution import DVC, add_folder, read_plan, run_command, run_headstart, say
from flows.flow_run import log
from flows.plan import Plan, Stage
from flows.repository import data_to_pull, find_root, locked, pipeline_of
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
from flows.telemetry import Monitor, announce, monitored
from flows.terminal import BudgetError, StageError, terminal

#: Delays in seconds before the retries of a stage that has crashed.
RETRY_DELAYS_S = (5, 30, 120)
#: DVC's messages about a stage that it did not run -> outcome; otherwise "Completed".
OUTCOMES = {
    re.compile(r"^Stage '.*' didn't change, skipping$"): "Skipped",
    re.compile(r"^Stage '.*' is cached - skipping run"): "Cached",
}


@dataclass(frozen=True)
class Engine:
    """What executes the stages.

    Attributes:
        run: stage and root of the repository -> its outcome: Completed, Cached (the output of an earlier run was
            restored) or Skipped. A stage that crashes is repeated.
        skip: notes a stage that is up to date.
        add_data: adds a new version of the data.
    """

    run: Callable[[Stage, Path], str]
    skip: Callable[[Stage], object]
    add_data: Callable[[Path], None]


def run_pipeline(file: Path, *, engine: Engine, rebuild: bool = False) -> dict[str, list[str]]:
    """Run every stage of a settings file that is not up to date; arguments, result and errors as of the flow
    `retrain`."""
    begun = BEGUN.pop(file, None)
    with (
        nullcontext(begun) if begun else begin(file, rebuild=rebuild) as run,
        monitored(file, root=run.root) as monitor,
    ):
        plan = run.plan
        processes.prepare(modules_of(plan, params=file))
        if has_changes(plan):
            # Skipped if every stage is up to date: the check takes seconds, and these settings have passed it before.
            run_headstart("check", "--params", str(file.relative_to(run.root)), source="check", root=run.root)
        plan.refuse_problem()
        check_space(plan, params=file, root=run.root)
        if plan.data == "changed" and data_to_pull(run.root).exists():
            raise ConfigError("data.dvc names data that has not been pulled; run `headstart sync`")
        if plan.data == "changed":
            engine.add_data(run.root)
        settled = registry_is_unchanged(file, root=run.root)
        spending = Spending(load_params(file), root=run.root)
        ahead = upcoming(plan, settled=settled)
        spending.refuse(ahead)
        spending.expect(ahead)
        monitor.expect(spending.remaining)
        if ahead:
            terminal.say(str(spending.remaining), source="run", stays=True)
        done = run_stages(plan, root=run.root, engine=engine, monitor=monitor, settled=settled, spending=spending)
        conclude(done, spending.params, monitor, file=file, root=run.root)
        terminal.say(f"run:     {monitor.name} ({monitor.id})")
        return done


def act_on_registry(params: Path, *, engine: Engine) -> None:
    """Run the stages that act on the registry.

    Raises:
        ConfigError: the settings or dvc.yaml are wrong.
        StageError: the registry cannot be reached, or there is nothing to register.
    """
    file = params.resolve()
    root = find_root(file.parent)
    announce()
    with locked(root, what=f"promote {params}", say=terminal.say):
        plan = read_plan(pipeline_of(file, root=root), root=root)
        plan.refuse_problem()
        for stage in plan.stages:
            if stage.name in ("register", "promote"):
                engine.run(stage, root)
    for line in summary.decisions(root=root, params=file):
        terminal.say(line)


def run_stages(
    plan: Plan, *, root: Path, engine: Engine, monitor: Monitor, settled: bool, spending: Spending
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
            limited = spending.begin(stage)
            started = time.monotonic()
            with monitor.stage(stage) as recorded:
                outcome = engine.run(limited, root)
                recorded.append(outcome)
            spending.end(stage, time.monotonic() - started, completed=outcome == "Completed")
            if outcome != "Skipped":
                # The reasons of the stages downstream of `identity` already include the new identities.
                changed |= {stage.name} - {IDENTITY}
                left = str(spending.remaining)
                terminal.done(stage.name, outcome.lower(), time.monotonic() - started, left=left)
        else:
            outcome = "Skipped"
            engine.skip(stage)
        done[outcome].append(stage.name)
        if outcome == "Skipped":
            terminal.done(stage.name, "up to date")
    return done


def reproduce(stage: Stage, root: Path) -> str:
    """Reproduce one stage with DVC, once; returns its outcome.

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
    return next((name for text, name in OUTCOMES.items() if any(map(text.match, lines))), "Completed")


def is_retriable(error: BaseException) -> bool:
    """Whether a failed stage is repeated: after a crash or a transient error, not if the user has to correct it."""
    return not (isinstance(error, StageError) and error.final)


def reproduce_with_retries(stage: Stage, root: Path) -> str:
    """`reproduce`, repeated as often as the stage's `retries` say."""
    for tried in range(stage.retries):
        try:
            return reproduce(stage, root)
        except Exception as error:
            if not is_retriable(error):
                raise
            time.sleep(RETRY_DELAYS_S[min(tried, len(RETRY_DELAYS_S) - 1)])
    return reproduce(stage, root)


def add_data(root: Path) -> None:
    """Run `dvc add data`, so that data.dvc identifies the data of the run."""
    say("new version of data/: dvc add", source="data")
    with changing_data(root):
        add_folder(Path("data"), root=root)


#: Executes stages without Prefect.
LOCAL = Engine(run=reproduce_with_retries, skip=lambda stage: None, add_data=add_data)
