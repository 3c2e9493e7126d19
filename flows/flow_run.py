"""The flow run of this process, if it executes one.

The import of Prefect takes a second. A process that has not imported it, and whose environment names no flow run, does
not execute one, so that nothing is imported here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from components.masking import masked

#: Prefix of the variables by which Prefect names the flow run of a process.
NAMED = "PREFECT__"
#: Set by a scheduled `headstart sync` for its retraining, a flow run of its own without a deployment.
SCHEDULED = "HEADSTART_SCHEDULED"


def identifier() -> str:
    """Its id; empty if there is none."""
    if not _is_possible():
        return ""
    from prefect.runtime import flow_run

    return str(flow_run.id or "")


def name() -> str:
    """Its name; empty if there is none."""
    if not _is_possible():
        return ""
    from prefect.runtime import flow_run

    return str(flow_run.name or "")


def is_scheduled() -> bool:
    """Whether a deployment has started it, or it is the retraining of a scheduled `headstart sync`."""
    if SCHEDULED in os.environ:
        return True
    if not _is_possible():
        return False
    from prefect.runtime import deployment

    return deployment.id is not None


@contextmanager
def passed_on() -> Iterator[None]:
    """Within the block, started processes count as scheduled if this process does."""
    if not is_scheduled() or SCHEDULED in os.environ:
        yield
        return
    os.environ[SCHEDULED] = "true"
    try:
        yield
    finally:
        del os.environ[SCHEDULED]


def log(line: str) -> None:
    """Write a line to its log."""
    if "prefect" not in sys.modules:
        return
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    try:
        get_run_logger().info(masked(line))
    except MissingContextError:
        return


def _is_possible() -> bool:
    return "prefect" in sys.modules or any(variable.startswith(NAMED) for variable in os.environ)
