"""A run of the pipeline, without Prefect: its lock, its stages, whether it has anything to do, and its end.

Used by the flow `retrain`, and by `headstart retrain` for runs that have nothing to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from components.pipeline.identity import STAGE as IDENTITY
from components.pipeline.rebuild import request
from components.settings.loading import load_params
from components.settings.params import Params
from flows import drift, registry, summary
from flows.execution import read_plan
from flows.imports import bring
from flows.plan import Plan, Stage
from flows.repository import find_root, locked, pipeline_of
from flows.telemetry import Monitor, monitored
from flows.terminal import terminal

#: Target stages of a run, which includes all of their dependencies.
GOALS = ("evaluate", "leakage", "leakage-together")
#: Stages whose outputs no score depends on: one that runs before training, on the inputs of the run.
BEFORE = ("checks",)
#: Stages that run last, on the outputs that exist then.
AFTERWARDS = ("register", "promote", "report")


@dataclass(frozen=True)
class Begun:
    """A run that holds the repository's lock; `plan` is being computed."""

    root: Path
    plan: Future[Plan]


#: Settings file -> the run that `headstart retrain` has begun before the flow starts.
BEGUN: dict[Path, Begun] = {}


@contextmanager
def begin(file: Path, *, rebuild: bool = False) -> Iterator[Begun]:
    """Hold the lock of a settings file's repository and compute its plan in the background.

    Args:
        file: the settings file.
        rebuild: whether to request a full rebuild.

    Raises:
        ConfigError: the settings file or dvc.yaml is wrong.
    """
    root = find_root(file.parent)
    with locked(root, what=f"retrain {os.path.relpath(file)}", say=terminal.say), ThreadPoolExecutor(1) as pool:
        bring(file, root=root)
        drift.check(file, root=root)
        reason = "headstart retrain --rebuild" if rebuild else drift.rebuild_reason(file, root=root)
        if reason:
            request(load_params(file), reason, root=root)
        yield Begun(root, pool.submit(read_plan, pipeline_of(file, root=root), root=root))


def conclude(done: dict[str, list[str]], params: Params, monitor: Monitor, *, file: Path, root: Path) -> None:
    """Record the end of a run and print its summary.

    Args:
        done: what `run_stages` returns.
        params: the settings.
        monitor: of the run.
        file: the settings file.
        root: of the repository.
    """
    decided = "promote" not in done["Skipped"]
    decisions = summary.decisions(root=root, params=file, decided=decided)
    monitor.summarise(decisions)
    for report in summary.reports(root=root, params=file):
        monitor.attach(report, folder="report")
    # Before the state of the registry is recorded, which the monitor changes.
    monitor.finish("FINISHED")
    registry.record(file, root=root)
    terminal.say("")
    for line in summary.lines(root=root, params=file, decided=decided):
        terminal.say(line, important=line in decisions)


def has_changes(plan: Plan) -> bool:
    """Whether data, code or settings have changed since the last run, or the plan has a problem."""
    return bool(plan.problem) or plan.data == "changed" or any(stage.reasons for stage in wanted(plan))


def is_up_to_date(run: Begun, file: Path) -> bool:
    """Whether a run would skip every stage, those included that run every time unless the registry is unchanged. False
    if there is no plan: the flow records the failure."""
    if run.plan.exception() is not None or has_changes(run.plan.result()):
        return False
    return registry.is_unchanged(file, root=run.root)


def skip_all(run: Begun, file: Path) -> None:
    """Print and record that everything is up to date, without a flow run: the import of Prefect and the start
    of its server take seconds."""
    with monitored(file, root=run.root) as monitor:
        names = [stage.name for stage in wanted(run.plan.result())]
        for name in names:
            terminal.done(name, "up to date")
        done = {"Completed": [], "Cached": [], "Skipped": names}
        conclude(done, load_params(file), monitor, file=file, root=run.root)


def upcoming(plan: Plan, *, settled: bool = False) -> dict[Stage, str]:
    """The stages that would run, with the reason; those that read the output of such a stage are included, although
    DVC skips them if it does not change."""
    ahead: dict[Stage, str] = {}
    names: dict[str, str] = {}
    for stage in wanted(plan):
        above = next((name for name in stage.needs if name in names and name != IDENTITY), None)
        if stage.reasons:
            why = stage.reasons[0]
        elif stage.always and not settled:
            why = "runs every time"
        elif above:
            why = f"reads the output of {above}"
        else:
            continue
        ahead[stage] = names[stage.name] = why
    return ahead


def wanted(plan: Plan) -> list[Stage]:
    """The stages of a run: `GOALS` and their dependencies, `BEFORE` and `AFTERWARDS`.

    A family that `run.families` does not name is not trained. Stages that read raw data only are included even if no
    score depends on them: they are quick, and `dvc pull` fails for a stage that has never run.
    """
    needed = plan.ancestors({stage.name for stage in plan.stages if stage.group in GOALS})
    return [
        stage
        for stage in plan.stages
        if stage.name in needed
        or stage.group in (*BEFORE, *AFTERWARDS)
        or (not {*stage.needs} - {IDENTITY} and stage.present)
    ]
