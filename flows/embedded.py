"""Prefect's embedded server ends with the process that started it, SIGKILL included.

Prefect starts a temporary server as a child process and stops it at exit; after SIGKILL it would run on.
"""

from __future__ import annotations

import os
import signal
import subprocess
from types import SimpleNamespace
from typing import Any

from flows.tied import tied


def tie_server() -> None:
    """Tie the embedded server that this process will start to it; nothing if `PREFECT_API_URL` names another server."""
    if os.environ.get("PREFECT_API_URL"):
        return
    from prefect.server.api import server

    def popen(args: list[str], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(tied(args, number=signal.SIGKILL), **options)

    # Prefect has no setting for the command of the server.
    server.subprocess = SimpleNamespace(**vars(subprocess) | {"Popen": popen})  # type: ignore[assignment]
