"""From raw data to a promoted classifier: `headstart retrain [--params experiments/full/params.yaml]`.

Runs the stages that are not up to date, in topological order. A second run in the same repository waits for the first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from prefect import flow

from components.commands.common import PARAMS, ParamsFile
from components.costs.outcomes import record_outcomes
from components.errors import ConfigError
from components.pipeline.identity import STAGE as IDENTITY
from components.pipeline.rebuild import request
from components.settings.loading import load_params
from components.settings.params import Params
from flows import drift, registry, summary
from flows.budget import Spending
from flows.command import main
from flows.dvc_tasks import add_data, skip_stage, stage_task
from flows.embedded import tie_server
from flows.execution import read_plan, run_headstart
from flows.imports import bring
from flows.missed import skip_missed
from flows.plan import Plan, Stage
from flows.repository import data_to_pull, find_root, locked, pipeline_of
from flows.space import check_run
from flows.telemetry import Monitor, monitored, run_name
from flows.terminal import terminal

#: Target stages of a run, which includes all of their dependencies.
GOALS = ("evaluate", "leakage", "leakage-together")
#: Stages whose outputs no score depends on: one that runs before training, on the inputs of the run.
BEFORE = ("checks",)
#: Measurements on what the other stages make.
BESIDE = ("ngrams",)
Rebuild = Annotated[
    bool, typer.Option("--rebuild", help="Start corpora, vocabularies and adapted models anew, as in an empty folder.")
]
#: Stages that run last, on the outputs that exist then.
AFTERWARDS = ("register", "promote", "report")


@dataclass(frozen=True)
class Begun:
    """A run that holds the repository's lock; `plan` is being computed."""

    root: Path
    plan: Future[Plan]


#: Settings file -> the run that `command` has begun before the flow starts.
_begun: dict[Path, Begun] = {}


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


@flow(name="retrain", flow_run_name=run_name)
def retrain(params: str = "params.yaml", rebuild: bool = False) -> dict[str, list[str]]:
    """Run every stage that is not up to date, in topological order.

    Args:
        params: the settings file.
        rebuild: whether corpora, vocabularies and adapted models start anew instead of from their last state.

    Returns:
        Outcome (Completed, Cached, Skipped) -> names of the stages.

    Raises:
        ConfigError: the settings or dvc.yaml are wrong; nothing has run.
        DiskSpaceError: there is too little disk space; nothing has run.
        StageError: a stage failed; the outputs of earlier stages are kept, and the next run resumes there.
    """
    skip_missed()
    file = Path(params).resolve()
    begun = _begun.pop(file, None)
    with (
        nullcontext(begun) if begun else begin(file, rebuild=rebuild) as run,
        monitored(file, root=run.root) as monitor,
    ):
        plan = run.plan.result()
        if drift.waits(file, root=run.root):
            terminal.say("no drift, so this scheduled run does nothing (drift.scheduled: on_drift)", source="drift")
            return {"Completed": [], "Cached": [], "Skipped": []}
        if plan.problem or plan.data == "changed" or any(stage.reasons for stage in wanted(plan)):
            # Skipped if every stage is up to date: the check takes seconds, and these settings have passed it before.
            run_headstart("check", "--params", str(file.relative_to(run.root)), source="check", root=run.root)
        plan.refuse_problem()
        check_run(plan, wanted(plan), params=file, root=run.root)
        if plan.data == "changed" and data_to_pull(run.root).exists():
            raise ConfigError("data.dvc names data that has not been pulled; run `headstart sync`")
        if plan.data == "changed":
            add_data(run.root)
        settled = registry.is_unchanged(file, root=run.root)
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
    record_outcomes(params, root=root)
    terminal.say("")
    for line in summary.lines(root=root, params=file, decided=decided):
        terminal.say(line, important=line in decisions)


def is_up_to_date(run: Begun, file: Path) -> bool:
    """Whether a run would skip every stage, those included that run every time unless the registry is unchanged."""
    plan = run.plan.result()
    if plan.problem or plan.data == "changed" or any(stage.reasons for stage in wanted(plan)):
        return False
    return registry.is_unchanged(file, root=run.root)


def skip_all(run: Begun, file: Path) -> None:
    """Print and record that everything is up to date, without a flow run: Prefect's server takes seconds to start."""
    with monitored(file, root=run.root) as monitor:
        names = [stage.name for stage in wanted(run.plan.result())]
        for name in names:
            terminal.done(name, "up to date")
        done = {"Completed": [], "Cached": [], "Skipped": names}
        conclude(done, load_params(file), monitor, file=file, root=run.root)


def upcoming(plan: Plan, *, settled: bool = False) -> dict[Stage, str]:
    """The stages that would run, with the reason; those that read the output of such a stage are included, although
    DVC skips them if it does not change."""
    found: dict[Stage, str] = {}
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
        found[stage] = names[stage.name] = why
    return found


def run_stages(
    plan: Plan, *, root: Path, monitor: Monitor, settled: bool = False, spending: Spending | None = None
) -> dict[str, list[str]]:
    """Run the stages of a plan that are wanted and not up to date.

    Args:
        plan: the stages.
        root: of the repository.
        monitor: is told what runs.
        settled: whether the registry is unchanged since the last run; the stages that always run then need not run.
        spending: limits the run to its budget and records durations.

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


def wanted(plan: Plan) -> list[Stage]:
    """The stages of a run: `GOALS` and their dependencies, `BEFORE`, `AFTERWARDS`, and those of `BESIDE` whose inputs
    the others make.

    A family that `run.families` does not name is not trained. Stages that read raw data only are included even if no
    score depends on them: they are quick, and `dvc pull` fails for a stage that has never run.
    """
    needed = plan.ancestors({stage.name for stage in plan.stages if stage.group in GOALS})
    needed |= {stage.name for stage in plan.stages if stage.group in BESIDE and {*stage.needs} <= {*needed, IDENTITY}}
    return [
        stage
        for stage in plan.stages
        if stage.name in needed
        or stage.group in (*BEFORE, *AFTERWARDS)
        or (not {*stage.needs} - {IDENTITY} and stage.present)
    ]


def command(
    *,
    params: ParamsFile = PARAMS,
    rebuild: Rebuild = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print warnings, decisions and errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as a JSON object on a line.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every line of the stages, as in a log.")] = False,
) -> None:
    """Run every stage that is not up to date, from raw data to the promoted classifier."""
    if quiet + as_json + verbose > 1:
        raise typer.BadParameter("give one of --quiet, --json and --verbose")
    terminal.style = "quiet" if quiet else "json" if as_json else "verbose" if verbose else "text"
    file = params.resolve()
    with begin(file, rebuild=rebuild) as begun:
        # With PREFECT_API_URL, the server records this run too.
        if not os.environ.get("PREFECT_API_URL") and is_up_to_date(begun, file):
            skip_all(begun, file)
            return
        _begun[file] = begun
        tie_server()
        retrain(str(params), rebuild)


if __name__ == "__main__":
    main(command)
