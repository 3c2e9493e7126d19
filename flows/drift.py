"""Drift in runs: served traffic is compared with training before a run; its summary shows the result."""

from __future__ import annotations

from pathlib import Path

from components.registry.drift.traffic import segments, traffic_folder
from components.reporting.findings import FOLDER
from components.settings.loading import load_params
from flows.execution import run_headstart
from flows.terminal import StageError, terminal

SOURCE = "drift"
LIMIT_S = 1800.0


def check(params: Path, *, root: Path) -> None:
    """Compare the served traffic of each task with training, if any was logged since the last check. An error of the
    check, such as a registry that does not answer, is printed and does not stop the run."""
    settings = load_params(params)
    for task in settings.run.tasks:
        logged = segments(traffic_folder(root) / task)
        checked = root / settings.run.out / FOLDER / f"drift-{task}" / "manifest.json"
        newest = max((segment.path.stat().st_mtime for segment in logged), default=0.0)
        if newest > (checked.stat().st_mtime if checked.is_file() else 0.0):
            try:
                path = str(params.relative_to(root))
                run_headstart("drift", "--task", task, "--params", path, source=SOURCE, root=root, limit_s=LIMIT_S)
            except StageError:
                terminal.say("the check failed; the run goes on", source=SOURCE)
