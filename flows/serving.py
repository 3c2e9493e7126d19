"""What stands behind `headstart schedule`: a runner that starts the runs that are due, each in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import psutil
from prefect.runner import Runner

from flows import processes
from flows.retrain import retrain

NAME = "scheduled"


class _Runner(Runner):
    """Prefect's runner, which ends at SIGTERM: its own handler (3.8.8) forgets to await what it calls, and hangs."""

    def handle_sigterm(self, *args: Any, **kwargs: Any) -> None:
        """Cancel the run in progress, pause the schedule, return from `start`."""
        self.execute_in_background(self.astop)


def serve(*, params: Path, when: dict[str, Any]) -> None:
    """Make the deployment `retrain/scheduled` and run what is due until SIGTERM or Ctrl-C.

    One run at a time here, and across processes by the repository's lock. Not by a limit on Prefect's server: a run
    whose process was killed while it was being submitted keeps its slot, and every later one waits for ever.

    Args:
        params: the file of settings.
        when: `cron` or `interval`, as Prefect takes them.
    """
    runner = _Runner(name=NAME, limit=1, pause_on_shutdown=True)
    runner.add_flow(retrain, name=NAME, parameters={"params": str(params)}, **when)
    before = {process.pid for process in psutil.Process().children()}  # Prefect's server, if it is ours
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(runner.start())
    finally:
        runs = [process.pid for process in psutil.Process().children() if process.pid not in before]
        processes.end(process for run in runs for process in processes.descendants(run))
