"""The retrainings of a project, from their runs in MLflow."""

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from components.core.errors import HeadstartError
from components.pages.project import Project
from components.pipeline.costs import History, left_of
from components.pipeline.telemetry import expected_of, is_killed
from components.registry.tracking import PARENT, PREFIX, RETRAIN, Registry
from components.reporting.figures import Line

#: Number of retrainings in a list, and of stages of one.
LISTED, STAGES = 20, 500
#: Quantities of a stage that are drawn.
DRAWN = re.compile(r"loss|perplexity|(?:^|_)(?:dev|cv|heldout)")
#: Beginnings of metrics that repeat others, or are about the machine.
COPIES = ("system/", "mean_over", "curve.")
#: Reason of a stage that has not run before.
NOT_RUN = "has not run yet"
#: Maximum number of curves in a figure.
CURVES = 8
RUNNING, FINISHED, FAILED, KILLED = "running", "finished", "failed", "interrupted"
STATUS = {"RUNNING": RUNNING, "SCHEDULED": RUNNING, "FINISHED": FINISHED, "FAILED": FAILED, "KILLED": KILLED}
OUTCOMES = {"Completed": FINISHED, "Cached": "restored", "Skipped": "up to date", "Failed": FAILED}


#: A retraining, as the pages show it: id, name, state, begun, seconds, summary (lines), reason, stages, left (the
#: remaining stages and their time, in words; empty if it has ended), results (task -> its score and what became of the
#: candidate: `Project.results`), data (first characters of the digest), and changed: why its stages ran.
Run = dict[str, Any]
#: A stage of a retraining: name, state (running, finished, restored, up to date, failed or interrupted), seconds, usual
#: (seconds of the last time, or None), why, error, curves (name -> line) and latest (values of a running stage).
Stage = dict[str, Any]


def listed(project: Project) -> tuple[list[Run], str]:
    """The retrainings, newest first, without their stages, and why they are missing."""
    try:
        results = project.results()
        runs = [_of_mlflow(run) for run in project.registry().search_runs(stage=RETRAIN, most=LISTED)]
        out = f"{project.settings.run.out}/"
        for run in runs:
            run |= {"results": results.get(run["id"], {}), "changed": _in_short(run["changed"], out)}
        return runs, ""
    except HeadstartError as error:
        return [], str(error)


def _in_short(changed: str, out: str) -> str:
    """Reasons of stages; files of code are counted, outputs of other stages (below `out`) left out."""
    reasons = [reason for reason in changed.split("; ") if not reason.startswith((NOT_RUN, out))]
    others = [reason for reason in reasons if not reason.startswith("code ")]
    if files := len(reasons) - len(others):
        others.append(f"code of Headstart ({files} {'file' if files == 1 else 'files'})")
    return "; ".join(others) or ("first run" if changed.startswith(NOT_RUN) else "")


def find(project: Project, identifier: str) -> Run | None:
    """One retraining with its stages; None if it does not exist."""
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", identifier):
        return None
    roots = project.registry().search_runs(run=identifier, stage=RETRAIN, most=1)
    return _of_mlflow(roots[0], project) if roots else None


def _of_mlflow(run: Any, project: Project | None = None) -> Run:
    tags, info = run.data.tags, run.info
    note = tags.get("mlflow.note.content", "")
    killed = info.status == "RUNNING" and is_killed(tags.get(f"{PREFIX}process", ""))
    stages = []
    if project is not None:
        registry, usual = project.registry(), {each.stage: each.seconds for each in History(project.root).read()}
        children = registry.search_runs(f"tags.`{PARENT}` = '{info.run_id}'", most=STAGES)
        # The runs of registered models, which the stage `register` makes, are children too.
        children = [child for child in children if f"{PREFIX}stage" in child.data.tags]
        children.sort(key=lambda child: child.info.start_time)
        stages = [_stage_of_mlflow(registry, child, usual, killed=killed) for child in children]
    state = KILLED if killed else STATUS.get(info.status, info.status.lower())
    ended = {stage["name"] for stage in stages if stage["state"] != RUNNING}
    passed = {stage["name"]: stage["seconds"] for stage in stages}
    rest = {name: seconds for name, seconds in expected_of(tags).items() if name not in ended}
    left = left_of({name: each and max(each - passed.get(name, 0), 0) for name, each in rest.items()})
    return {
        "id": tags.get(f"{PREFIX}run", ""),
        "name": info.run_name,
        "state": state,
        "begun": info.start_time / 1000,
        "seconds": ((info.end_time or 1000 * time.time()) - info.start_time) / 1000,
        "summary": [line.removeprefix("- ") for line in note.splitlines() if line.startswith("- ")],
        "reason": tags.get(f"{PREFIX}reason", ""),
        "stages": stages,
        "left": left if state == RUNNING else "",
        "results": {},
        "data": tags.get(f"{PREFIX}data", "")[:7],
        "changed": tags.get(f"{PREFIX}changed", ""),
    }


def _stage_of_mlflow(registry: Registry, run: Any, usual: Mapping[str, float], *, killed: bool) -> Stage:
    tags, info = run.data.tags, run.info
    name = tags[f"{PREFIX}stage"]
    drawn = [key for key in run.data.metrics if DRAWN.search(key) and not key.startswith(COPIES)]
    curves = {}
    for key in drawn:
        with suppress(Exception):  # a curve that cannot be read leaves the others
            history = registry.client.get_metric_history(info.run_id, key)
            points = sorted({point.step: point.value for point in history}.items())
            if len(points) > 1:
                curves[key] = Line([step for step, _ in points], [value for _, value in points])
    state = OUTCOMES.get(tags.get(f"{PREFIX}outcome", ""), STATUS.get(info.status, info.status.lower()))
    killed = killed and state == RUNNING
    return {
        "name": name,
        "state": KILLED if killed else state,
        "seconds": ((info.end_time or 1000 * time.time()) - info.start_time) / 1000,
        "usual": usual.get(name),
        "why": tags.get(f"{PREFIX}why", ""),
        "error": tags.get(f"{PREFIX}error", ""),
        "curves": curves,
        "latest": dict(run.data.metrics) if state == RUNNING and not killed else {},
    }
