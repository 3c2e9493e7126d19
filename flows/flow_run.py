"""The flow run of this process, if it executes one. Prefect is not imported without one."""

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from components.core.masking import masked
from flows.bound import end_with

#: Prefix of the variables by which Prefect names the flow run of a process.
NAMED = "PREFECT__"
#: Process of a schedule, in which Prefect's runner starts runs.
RUNNER = "HEADSTART_RUNNER"
#: Seconds between two updates of the progress of a stage on the page of its flow run.
PROGRESS_S = 10.0
#: Flow run and stage -> the artifact with its progress, and when it was shown.
_PROGRESS: dict[tuple[str, str], tuple[Any, float]] = {}
#: What is said of a run whose process has ended without a word.
KILLED = "its process has died; the next run goes on where it was"
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


def show_table(key: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Show a table on the page of the flow run."""
    _show(lambda artifacts: artifacts.create_table_artifact([dict(row) for row in rows], key=_key(key)))


def show_text(key: str, text: str) -> None:
    """Show a text in Markdown on the page of the flow run."""
    _show(lambda artifacts: artifacts.create_markdown_artifact(masked(text), key=_key(key)))


def show_progress(stage: str, percent: float) -> None:
    """Show the progress of a stage that takes longer than some seconds."""
    run = identifier()
    artifact, shown = _PROGRESS.setdefault((run, stage), (None, time.monotonic()))
    if not run or time.monotonic() - shown < PROGRESS_S:
        return
    if artifact is None:
        artifact = _show(lambda artifacts: artifacts.create_progress_artifact(percent, key=_key(f"progress-{stage}")))
    else:
        _show(lambda artifacts: artifacts.update_progress_artifact(artifact, percent))
    _PROGRESS[run, stage] = artifact, time.monotonic()


def _key(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _show(make: Callable[[Any], Any]) -> Any:
    """Make an artifact of the flow run, if there is one; None if the server does not answer."""
    if not identifier():
        return None
    from httpx import HTTPError
    from prefect import artifacts
    from prefect.exceptions import PrefectException

    with suppress(HTTPError, PrefectException):
        return make(artifacts)
    return None


def mark_crashed(run: str) -> None:
    """Record the end of a run whose process was killed, within a later one."""
    if not run or not identifier():
        return
    from httpx import HTTPError
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectException
    from prefect.states import Crashed

    with suppress(HTTPError, PrefectException, ValueError), get_client(sync_client=True) as client:
        state = client.read_flow_run(UUID(run)).state
        if state is not None and not state.is_final():
            client.set_flow_run_state(UUID(run), Crashed(message=KILLED), force=True)


def begin_scheduled() -> int:
    """Within a run that a schedule has started: end with it, and cancel the runs of the same deployment that
    should have started since, for which this run does. Returns their number."""
    if os.environ.get(RUNNER) == str(os.getppid()):
        end_with(os.getppid())
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
