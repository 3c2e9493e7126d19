"""Drift in runs: served traffic is compared with training first, and a scheduled run may depend on the result."""

from __future__ import annotations

import json
from pathlib import Path

from components.artifacts import read_json, write_atomic
from components.drift.traffic import segments
from components.errors import ConfigError
from components.reporting.findings import FOLDER, read
from components.settings.loading import load_params
from components.settings.params import Params
from flows import flow_run
from flows.execution import run_headstart
from flows.repository import STATE
from flows.terminal import StageError, terminal

SOURCE = "drift"
LIMIT_S = 1800.0


def check(params: Path, *, root: Path) -> None:
    """Compare the served traffic of each task with training, if any was logged since the last check. An error of the
    check, such as a registry that does not answer, is printed and stops nothing but a run that waits for drift.

    Args:
        params: the settings file.
        root: of the repository.

    Raises:
        StageError: the check failed, and whether this run does anything depends on it.
    """
    settings = load_params(params)
    for task in settings.run.tasks:
        logged = segments(root / settings.drift.folder / task)
        checked = root / settings.run.out / FOLDER / f"drift-{task}" / "manifest.json"
        newest = max((segment.path.stat().st_mtime for segment in logged), default=0.0)
        if newest > (checked.stat().st_mtime if checked.is_file() else 0.0):
            try:
                path = str(params.relative_to(root))
                run_headstart("drift", "--task", task, "--params", path, source=SOURCE, root=root, limit_s=LIMIT_S)
            except StageError:
                if _depends(settings):
                    raise
                terminal.say("the check failed; the run goes on", source=SOURCE)


def waits(params: Path, *, root: Path) -> bool:
    """Whether this is a scheduled run that waits for drift (`drift.scheduled: on_drift`), and there is none.

    Raises:
        ConfigError: it waits, and no served row of any task is logged where it looks.
    """
    settings = load_params(params)
    if not _depends(settings) or drifted(params, root=root):
        return False
    folder = root / settings.drift.folder
    if not any(segments(folder / task) for task in settings.run.tasks):
        raise ConfigError(
            f"drift.scheduled: on_drift, but {folder} holds no log of served rows, so drift is never found; serve with "
            "drift.log: true and the same drift.folder or HEADSTART_TRAFFIC, or set drift.scheduled: always"
        )
    return True


def _depends(settings: Params) -> bool:
    """Whether this run does something only if there is drift."""
    return settings.drift.scheduled == "on_drift" and flow_run.is_scheduled()


def drifted(params: Path, *, root: Path) -> dict[str, str]:
    """Task -> the version whose traffic has drifted, by the last check."""
    settings = load_params(params)
    folders = {task: root / settings.run.out / FOLDER / f"drift-{task}" for task in settings.run.tasks}
    results = {task: read(folder).numbers for task, folder in folders.items() if folder.is_dir()}
    return {task: str(numbers["what"]) for task, numbers in results.items() if numbers["drift"]}


def rebuild_reason(params: Path, *, root: Path) -> str:
    """Why this run has to rebuild what is otherwise continued from earlier runs; empty: it need not.

    A scheduled run that has waited for drift rebuilds, once for each version whose traffic has drifted: another rebuild
    from the same data would change nothing.
    """
    settings = load_params(params)
    if not _depends(settings):
        return ""
    file = root / STATE / "drift-rebuilds.json"
    rebuilt = read_json(file, made_by="a scheduled run", missing_ok=True)
    new = {task: version for task, version in drifted(params, root=root).items() if rebuilt.get(task) != version}
    if not new:
        return ""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, json.dumps(rebuilt | new) + "\n")
    return f"drift of {', '.join(new.values())}"
