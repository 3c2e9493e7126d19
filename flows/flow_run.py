"""The flow run of this process, if it executes one, and the times of a schedule. Prefect is not imported without
one."""

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from components.core.masking import masked
from flows.bound import end_with

#: Prefix of the variables by which Prefect names the flow run of a process.
NAMED = "PREFECT__"
#: Process of the runner of a schedule.
RUNNER = "HEADSTART_RUNNER"
#: State of a run whose time has passed before it could start.
MISSED = "Missed"


def identifier() -> str:
    """Its id; empty if there is none."""
    return _of_run("id")


def name() -> str:
    """Its name; empty if there is none."""
    return _of_run("name")


def _of_run(attribute: str) -> str:
    if "prefect" not in sys.modules and not any(variable.startswith(NAMED) for variable in os.environ):
        return ""
    from prefect.runtime import flow_run

    return str(getattr(flow_run, attribute) or "")


def log(line: str) -> None:
    if "prefect" not in sys.modules:
        return
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    try:
        get_run_logger().info(masked(line))
    except MissingContextError:
        return


@dataclass(frozen=True)
class Times:
    """The times of a schedule.

    Attributes:
        cron: cron expression, in `timezone`; not used if `every` is given.
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


def begin_scheduled() -> int:
    """Within a run that a schedule has started: end with its runner, and cancel the runs of the same deployment that
    should have started since, for which this run does. Returns their number."""
    if os.environ.get(RUNNER) == str(os.getppid()):
        end_with(os.getppid(), signal.SIGTERM)
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
        for each in missed:
            state: Any = Cancelled(name=MISSED, message="its time passed before it could start; one run does for all")
            client.set_flow_run_state(each.id, state, force=True)
    return len(missed)
