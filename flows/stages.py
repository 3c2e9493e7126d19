"""A run of the pipeline: its stages in topological order, and how each is executed. This module does not import
Prefect."""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock

from components.cluster.session import session
from components.core.errors import ConfigError
from components.core.measurements import FILE
from components.pipeline import costs
from components.pipeline.costs import Duration, Estimate, History, Total, gpus, left_of, machine, work_of
from components.pipeline.identity import STAGE as IDENTITY
from components.pipeline.stages import DISTRIBUTED
from flows import processes, summary, warm
from flows.execution import add_folder, run_command, run_headstart, say
from flows.flow_run import log
from flows.plan import DATA, Plan, Stage, read_plan
from flows.repository import DATA_TO_PULL, Project, environment, pipeline_of
from flows.run import (
    AFTERWARDS,
    STORES,
    begin,
    check_space,
    conclude,
    modules_of,
    registry_is_unchanged,
    upcoming,
    wanted,
)
from flows.server import ensured
from flows.telemetry import Monitor, announce, monitored
from flows.terminal import BudgetError, StageError, terminal


class Spending:
    """What a run has cost so far: the seconds since this object was made, before the first stage."""

    def __init__(self, project: Project) -> None:
        self.params, self.history = project.settings, History(project.root)
        self.machine, self.gpus = machine(self.params.cluster), gpus()
        self.began, self.lock = time.monotonic(), Lock()
        self._fresh: dict[str, bool] = {}

    def estimates(self, stages: Mapping[Stage, str]) -> list[Estimate]:
        """The cost of stages, from the history of this machine."""
        history = self.history.read()
        return [
            costs.estimate(
                stage.name,
                work_of(stage.name, self.params),
                history,
                machine=self.machine,
                gpus=self.gpus,
                why=why,
            )
            for stage, why in stages.items()
        ]

    def excess(self, total: Total) -> str:
        """By how much the expected cost exceeds the budget, in words; empty if it does not."""
        limit = self.params.budget.hours
        over = limit is not None and total.seconds > 3600 * limit
        return f"{total.seconds / 3600:.2f} hours, and budget.hours is {limit:g}" if over else ""

    def refuse(self, stages: Mapping[Stage, str]) -> None:
        """Check that the stages are not expected to exceed the budget.

        Raises:
            BudgetError: they are; nothing has run.
        """
        if self.params.budget.hours is None or not stages:
            return
        total = costs.total(self.estimates(stages))
        if more := self.excess(total):
            error = BudgetError(
                f"the run is expected to take {more}; nothing has run. Raise the budget, or shorten the run "
                "(`headstart plan` lists its stages)"
            )
            terminal.error(str(error))
            raise error
        if total.unknown:
            terminal.say(
                f"budget: no history of {', '.join(total.unknown)}; the run is stopped if it exceeds the budget"
            )

    def begin(self, stage: Stage) -> Stage:
        """Note that a stage begins; returns the stage with the time at which the budget is used up.

        Raises:
            BudgetError: it is used up already.
        """
        limit = self.params.budget.hours
        until = math.inf if limit is None else self.began + 3600 * limit
        if until <= time.monotonic():
            error = BudgetError(
                f"{stage.name}: not started, because the run has used up its budget (params.yaml: budget); "
                "the outputs so far are kept, and the next run resumes here"
            )
            terminal.error(str(error))
            raise error
        self._fresh[stage.name] = self.history.begin(stage.name)
        return replace(stage, budget_until=until)

    def end(self, stage: Stage, seconds: float, *, completed: bool) -> None:
        """Note that a stage has ended without an error."""
        duration = None
        if self._fresh.pop(stage.name) and completed:
            work, now = work_of(stage.name, self.params), datetime.now(UTC)
            ended = now.isoformat(timespec="milliseconds")
            duration = Duration(stage.name, self.machine, work.unit, work.amount, seconds, ended)
        self.history.end(stage.name, duration)


#: Reproduces a stage, and repeats one that crashes; returns its outcome: Completed, Cached (the output of an earlier
#: run was restored) or Skipped. Several threads may call it.
Run = Callable[[Stage], str]


@ensured()
def run_pipeline(
    file: Path, *, run: Run, rebuild: bool = False, brief: bool = False, goals: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Run every stage of a settings file that is not up to date; arguments, result and errors as of the flow
    `retrain`."""
    project = Project(file)
    with begin(project, rebuild=rebuild, goals=goals) as plan, monitored(project) as monitor:
        settled = registry_is_unchanged(project)
        ahead = upcoming(plan, settled=settled)
        if ahead:
            warm.serve(modules_of(ahead, project), environment(project.root))
        if plan.problem or plan.data == "changed" or any(stage.reasons for stage in ahead):
            # Skipped if every stage is up to date: the check takes seconds, and these settings have passed it before.
            run_headstart("check", "--params", project.name, source="check")
        plan.refuse_problem()
        check_space(ahead, project)
        if plan.data == "changed" and DATA_TO_PULL.exists():
            raise ConfigError("data.dvc names data that has not been pulled; run `headstart sync`")
        if plan.data == "changed":
            say("new version of data/: dvc add", source="data")
            add_folder(Path(DATA))
        spending = Spending(project)
        spending.refuse(ahead)
        expected = {each.stage: each.seconds for each in spending.estimates(ahead)}
        monitor.expected = {name: seconds for name, seconds in expected.items() if name != IDENTITY}
        terminal.expect(expected)
        if ahead:
            terminal.say(left_of(expected), source="run")
        # It starts beside the stages before the first training.
        with session(spending.params.cluster, needed=any(stage.group in DISTRIBUTED for stage in ahead)):
            done = run_stages(plan, run=run, monitor=monitor, settled=settled, spending=spending)
        if goals:
            monitor.finish("FINISHED")
        else:
            conclude(done, monitor, project, brief=brief)
        terminal.say(f"{monitor.name} ({monitor.id})", source="run")
        return done


@ensured()
def act_on_registry(params: Path, *, run: Run) -> None:
    """Run the stages that act on the registry.

    Raises:
        ConfigError: the settings or dvc.yaml are wrong.
        StageError: the registry cannot be reached, or there is nothing to register.
    """
    project = Project(params)
    root = project.root
    announce()
    with project.locked("promote"):
        warm.serve([STORES], environment(root))
        plan = read_plan(pipeline_of(project), root=root)
        plan.refuse_problem()
        for stage in plan.stages:
            if stage.name in ("register", "promote"):
                run(stage)
    for line in summary.decisions(project):
        terminal.say(line)


def run_stages(plan: Plan, *, run: Run, monitor: Monitor, settled: bool, spending: Spending) -> dict[str, list[str]]:
    """Run the wanted stages of a plan that are not up to date, several at once if `cluster.stages` allows it. After a
    failure no stage begins, and those that run are waited for. `settled`: whether the registry is unchanged, so that
    stages that always run need not. Returns outcome (Completed, Cached, Skipped) -> names."""
    done: dict[str, list[str]] = {"Completed": [], "Cached": [], "Skipped": []}
    changed: set[str] = set()
    left, running = wanted(plan), dict[Future[str], Stage]()
    failure: Exception | None = None
    limit = spending.params.cluster.stages_at_once
    with ThreadPoolExecutor(limit, thread_name_prefix="stage") as threads, _stopping(running):
        while left or running:
            stage = next_stage(left, [*running.values()]) if len(running) < limit else None
            if stage is None:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    ended = running.pop(future)
                    try:
                        outcome = future.result()
                    except Exception as error:
                        failure = failure or error
                        left.clear()
                        continue
                    done[outcome].append(ended.name)
                    if outcome != "Skipped":
                        # The reasons of the stages downstream of `identity` already include the new identities.
                        changed |= {ended.name} - {IDENTITY}
                continue
            left.remove(stage)
            # Stages downstream of one that ran are checked by DVC, which skips them if its output is unchanged.
            if stage.reasons or (stage.always and not settled) or changed.intersection(stage.needs):
                attended = partial(_attended, stage, run=run, monitor=monitor, spending=spending)
                # In the context of the flow; in a thread, because a second signal would end the wait for its processes.
                running[threads.submit(copy_context().run, attended)] = stage
            else:
                done["Skipped"].append(stage.name)
                terminal.done(stage.name, "up to date")
    if failure is not None:
        raise failure
    return done


def next_stage(left: Sequence[Stage], running: Sequence[Stage]) -> Stage | None:
    """The first of the stages that are left, in topological order, that may begin beside those that run."""
    pending = {stage.name for stage in (*left, *running)}
    for number, stage in enumerate(left):
        if pending.intersection(stage.needs) or (stage.group in AFTERWARDS and (number or running)):
            continue
        # Workers of a training start together: beside small tasks, which take every free processor, they never would.
        if all((stage.group in DISTRIBUTED) == (each.group in DISTRIBUTED) for each in running):
            return stage
    return None


def _attended(stage: Stage, *, run: Run, monitor: Monitor, spending: Spending) -> str:
    """Run a stage, and record what it took; returns the outcome, or raises the error of the stage."""
    with spending.lock:
        limited, started = spending.begin(stage), time.monotonic()
    outcome = monitor.run(limited, run)
    seconds = time.monotonic() - started
    with spending.lock:
        spending.end(stage, seconds, completed=outcome == "Completed")
    if outcome == "Skipped":
        terminal.done(stage.name, "up to date")
    else:
        terminal.done(stage.name, outcome.lower(), seconds)
    return outcome


@contextmanager
def _stopping(running: Collection[Future[str]]) -> Iterator[None]:
    """A block that ends the stages that run if it is interrupted."""
    processes.STOPPED.clear()
    processes.STOPPING.clear()
    try:
        yield
    except BaseException as error:
        processes.STOPPED.append(error)
        processes.STOPPING.set()
        wait(running)
        raise


def reproduce(stage: Stage) -> str:
    """Reproduce one stage with DVC, once; returns its outcome.

    Raises:
        StageError: the stage failed, with its error message.
    """
    usual = {each.stage: each.seconds for each in History(Path()).read()}.get(stage.name)
    terminal.begin(stage.name, reasons=stage.reasons, usual_s=usual)
    for reason in stage.reasons[:3]:
        log(f"reason: {reason}")
    left = stage.budget_until - time.monotonic()
    stop = BudgetError(
        f"{stage.name}: stopped, because the run has used up its budget (params.yaml: budget); "
        "the outputs so far are kept, and the next run resumes this stage"
    )
    limit_s, beyond = (left, stop) if left < stage.limit_s else (stage.limit_s, None)
    forced = ("force",) if stage.force else ()
    with tempfile.TemporaryDirectory(prefix="headstart-") as folder:
        outcome = Path(folder) / "outcome"
        run_command(
            (sys.executable, "-m", "flows.reproduce", stage.address, str(outcome), *forced),
            source=stage.name,
            limit_s=limit_s,
            beyond=beyond,
            variables={FILE: stage.measurements} if stage.measurements else {},
        )
        return outcome.read_text(encoding="utf-8")


def is_retriable(error: BaseException) -> bool:
    """Whether a failed stage is repeated: after a crash or a transient error, not if the user has to correct it."""
    return not (isinstance(error, StageError) and error.final)
