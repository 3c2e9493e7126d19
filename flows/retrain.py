"""From raw data to a promoted classifier: `headstart retrain [--params experiments/full/params.yaml]`.

The chain of stages in the order of the DVC graph. What is up to date stays as it is; what has changed, and what depends
on it, is done again. Two runs in one repository wait for each other.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from prefect import flow

from flows import processes, registry, summary
from flows.command import PARAMS, ParamsFile, main
from flows.dvc_tasks import add_data, failure, leave_stage, run_headstart, stage_task
from flows.plan import Plan, Stage
from flows.repository import environment, find_root, locked, pipeline_of
from flows.terminal import terminal

#: What a run is for: the scores. They ask for everything they are made from; the rest reads what is there then.
GOALS = ("evaluate",)
AFTERWARDS = ("report", "register", "promote")


@dataclass(frozen=True)
class Begun:
    """A run that holds its repository; `plan` is what DVC says, who is being asked."""

    root: Path
    plan: Future[Plan]


#: By params file: runs that were begun before their flow.
_begun: dict[Path, Begun] = {}


@contextmanager
def begin(file: Path) -> Iterator[Begun]:
    """Hold the repository of a params file, end what a killed run has left in it, and have DVC asked meanwhile.

    Raises:
        ConfigError: the params file or dvc.yaml is wrong.
    """
    root = find_root(file.parent)
    with locked(root, what=f"retrain {os.path.relpath(file)}", say=terminal.say), ThreadPoolExecutor(1) as aside:
        if left := processes.orphans(root):
            terminal.say(f"ending what a run that was killed has left running ({len(left)} processes)")
            processes.end(left)
            processes.forget(left)
        yield Begun(root, aside.submit(ask_dvc, pipeline_of(file, root=root), root=root))


@flow(name="retrain", flow_run_name="retrain {params}")
def retrain(params: str = "params.yaml") -> dict[str, list[str]]:
    """Run every stage that is not up to date, in the order of the graph.

    Returns:
        The names of the stages by what was done: Completed, Cached, Skipped.

    Raises:
        ConfigError: the settings or dvc.yaml are wrong; nothing has run.
        StageError: a stage failed; those before it are done, the next run goes on from there.
    """
    file = Path(params).resolve()
    begun = _begun.pop(file, None)
    with nullcontext(begun) if begun else begin(file) as run:
        plan = run.plan.result()
        if plan.problem or plan.data == "changed" or any(stage.reasons for stage in wanted(plan)):
            # Settings with which everything is done already were right; looking again would take seconds.
            run_headstart("check", "--params", str(file.relative_to(run.root)), source="check", root=run.root)
        plan.refuse_problem()
        if plan.data == "changed":
            add_data(run.root)
        done = run_stages(plan, root=run.root, settled=registry.is_as_left(file, root=run.root))
        registry.leave(file, root=run.root)
        terminal.say("")
        for line in summary.lines(root=run.root, params=file):
            terminal.say(line)
        return done


def run_stages(plan: Plan, *, root: Path, settled: bool = False) -> dict[str, list[str]]:
    """Run the stages of a plan that are wanted and not up to date.

    Args:
        settled: what the stages that always run act on, outside, is as the last run left it; they need not look.

    Returns:
        The names of all that are wanted by what was done: Completed, Cached, Skipped.
    """
    done: dict[str, list[str]] = {"Completed": [], "Cached": [], "Skipped": []}
    touched: set[str] = set()
    for stage in wanted(plan):
        # Below a stage that ran, DVC looks again: the same output as before changes nothing further down.
        if stage.reasons or (stage.always and not settled) or touched.intersection(stage.needs):
            started = time.monotonic()
            outcome = str(stage_task(stage)(stage, root, return_state=True).result())
            if outcome != "Skipped":
                touched.add(stage.name)
                terminal.say(f"{outcome.lower()} in {time.monotonic() - started:.1f} s", source=stage.name)
        else:
            outcome = str(leave_stage.with_options(name=stage.group)(stage, return_state=True).result())
        done[outcome].append(stage.name)
        if outcome == "Skipped":
            terminal.say("up to date", source=stage.name)
    return done


def wanted(plan: Plan) -> list[Stage]:
    """The stages of a run: those that lead to the scores, and those that then read whatever is there.

    A family that `run.families` does not name is not trained. Raw data is read even if no score asks for it: that is
    quick, and `dvc pull` fails over a stage that never ran.
    """
    needed = plan.ancestors({stage.name for stage in plan.stages if stage.group in GOALS})
    return [
        stage
        for stage in plan.stages
        if stage.name in needed or stage.group in AFTERWARDS or (not stage.needs and stage.present)
    ]


def ask_dvc(pipeline: Path, *, root: Path) -> Plan:
    """The plan of a dvc.yaml, read by a process of its own; it says what DVC finds wrong with the pipeline.

    Raises:
        StageError: the process crashed.
    """
    lines: list[str] = []
    command = [sys.executable, "-m", "flows.plan", str(pipeline.relative_to(root))]
    code = processes.run(command, directory=root, environment=environment(root), limit_s=3600, on_line=lines.append)
    if code:
        raise failure("dvc status", code, lines)
    return Plan.from_json(lines[-1])


def command(*, params: ParamsFile = PARAMS) -> None:
    """Bring everything up to date, from raw data to the promoted classifier."""
    file = params.resolve()
    with begin(file) as begun:
        # Prefect takes seconds to start its server; DVC is asked in that time.
        _begun[file] = begun
        retrain(str(params))


if __name__ == "__main__":
    main(command)
