"""The runner behind `headstart schedule`: starts the runs that are due, each in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import psutil
from prefect.runner import Runner

from flows import processes
from flows.retrain import retrain
from flows.sync import sync

NAME = "scheduled"


class _Runner(Runner):
    """Prefect's runner with a working SIGTERM handler: that of Prefect 3.8.8 does not await its coroutine and hangs."""

    def handle_sigterm(self, *args: Any, **kwargs: Any) -> None:
        """Cancel the run in progress, pause the schedule, return from `start`."""
        self.execute_in_background(self.astop)


def serve(*, params: Path, when: dict[str, Any], synchronise: bool = False) -> None:
    """Create the deployment `retrain/scheduled`, or `sync/scheduled`, and start the runs that are due until SIGTERM or
    Ctrl-C.

    The runner starts one run at a time; other processes wait for the repository's lock. Prefect's own concurrency limit
    is not used: a run whose process is killed while it is submitted keeps its slot and blocks all later runs.

    Args:
        params: the settings file.
        when: `interval` or `schedule`, as Prefect takes them.
        synchronise: whether each run pulls code and data first, and pushes and commits its result.
    """
    runner = _Runner(name=NAME, limit=1, pause_on_shutdown=True)
    runner.add_flow(sync if synchronise else retrain, name=NAME, parameters={"params": str(params)}, **when)
    before = {process.pid for process in psutil.Process().children()}  # includes Prefect's server
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(runner.start())
    finally:
        runs = [process.pid for process in psutil.Process().children() if process.pid not in before]
        processes.end(process for run in runs for process in processes.descendants(run))
