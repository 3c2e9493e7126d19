"""When a schedule is due, and whether it owes a run: for times that passed while nobody served it, or for a run that
did not end. One run makes up for all of them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.artifacts import write_atomic
from components.errors import ArtifactError
from flows.terminal import terminal

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

#: State of a run whose time has passed before it could start.
MISSED = "Missed"
MISSED_MESSAGE = "its time passed before it could start; one run does for all"


@dataclass(frozen=True)
class Times:
    """The times of a schedule.

    Attributes:
        cron: cron expression, in `timezone`; not used if `every` is given.
        timezone: of the cron expression.
        every: interval in seconds; 0: use `cron`.
    """

    cron: str
    timezone: str
    every: float = 0

    def __str__(self) -> str:
        return f"every {self.every:g} s" if self.every else f"cron {self.cron}, time zone {self.timezone}"

    def prefect(self) -> dict[str, Any]:
        """The schedule as keyword arguments of `Flow.to_deployment`."""
        from prefect.schedules import Cron

        return {"interval": self.every} if self.every else {"schedule": Cron(self.cron, timezone=self.timezone)}

    def first(self, *, after: datetime, until: datetime) -> datetime | None:
        """The first time in (after, until], or None."""
        if self.every:
            time = after + timedelta(seconds=self.every)
            return time if time <= until else None
        from prefect.server.schemas.schedules import CronSchedule

        schedule = CronSchedule(cron=self.cron, timezone=self.timezone)
        # `start` is included; times of cron are whole minutes.
        start = after + timedelta(microseconds=1)
        return next(iter(asyncio.run(schedule.get_dates(1, start, until))), None)


def skip_missed() -> int:
    """Within a run that a schedule has started: cancel the runs of the same deployment that should have started since.

    After a long run, or after a time without a worker, a work pool would start them one after the other. Returns their
    number.
    """
    from prefect.client.orchestration import get_client
    from prefect.context import FlowRunContext
    from prefect.states import Cancelled

    context = FlowRunContext.get()
    run = context.flow_run if context is not None else None
    if run is None or run.deployment_id is None or not run.auto_scheduled:
        return 0
    with get_client(sync_client=True) as client:
        late = client.get_scheduled_flow_runs_for_deployments([run.deployment_id], scheduled_before=datetime.now(UTC))
        missed = [each for each in late if each.auto_scheduled and each.id != run.id]
        state: State[Any] = Cancelled(name=MISSED, message=MISSED_MESSAGE)
        for each in missed:
            client.set_flow_run_state(each.id, state, force=True)
    return len(missed)


class Record:
    """What a schedule has done, in a file that outlives its process.

    Args:
        path: of the file.
        times: of the schedule. The record of other times says nothing about these.
    """

    def __init__(self, path: Path, times: Times) -> None:
        self._path = path
        self._times = times
        self._passed: datetime | None = None
        self._unfinished = False
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            if raw["times"] == str(times):
                self._passed = datetime.fromisoformat(raw["passed"])
                self._unfinished = bool(raw["unfinished"])
        except (OSError, ValueError, KeyError, TypeError):
            self._passed = None

    def owed(self, now: datetime) -> str:
        """Why a run is owed at `now`; empty if none is."""
        if self._unfinished:
            return "the last run did not end"
        if self._passed is None:
            return ""
        time = self._times.first(after=self._passed, until=now)
        return f"the run of {time.astimezone():%Y-%m-%d %H:%M:%S %Z} was missed" if time is not None else ""

    def passed(self, now: datetime) -> None:
        """Nothing is owed for the times until `now`."""
        self._write(now, unfinished=False)

    def started(self, now: datetime) -> None:
        """A run starts, which does for all times until `now`."""
        self._write(now, unfinished=True)

    def finished(self) -> None:
        """The run has ended, with or without success."""
        self._write(self._passed or datetime.now(UTC), unfinished=False)

    def _write(self, passed: datetime, *, unfinished: bool) -> None:
        self._passed, self._unfinished = passed, unfinished
        content = {"times": str(self._times), "passed": passed.isoformat(), "unfinished": unfinished}
        try:
            write_atomic(self._path, json.dumps(content))
        except ArtifactError as error:
            # For example, a run has filled the disk. The schedule goes on.
            terminal.say(f"warning: {error}")
