"""Whether a Prefect server is configured. If not, the embedded one ends with the process that started it, SIGKILL
included.

Prefect starts a temporary server as a child process and stops it at exit; after SIGKILL it would run on.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flows.tied import tied


def has_server() -> bool:
    """Whether `PREFECT_API_URL` names a Prefect server, in the environment or in a profile of Prefect. Prefect is
    imported only if there is a file of profiles."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    profiles = os.environ.get("PREFECT_PROFILES_PATH") or f"{os.environ['PREFECT_HOME']}/profiles.toml"
    if not Path(profiles).expanduser().is_file():
        return False
    from prefect.settings import PREFECT_API_URL

    return bool(PREFECT_API_URL.value())


def tie_server() -> None:
    """Tie the embedded server that this process will start to it; nothing if another server is configured."""
    if has_server():
        return
    from prefect.server.api import server

    def popen(args: list[str], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(tied(args, number=signal.SIGKILL), **options)

    # Prefect has no setting for the command of the server.
    server.subprocess = SimpleNamespace(**vars(subprocess) | {"Popen": popen})  # type: ignore[assignment]
