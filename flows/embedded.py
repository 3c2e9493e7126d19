"""Whether a Prefect server is configured. If not, the embedded one ends with the process that started it, SIGKILL
included.

Prefect starts a temporary server as a child process and stops it at exit; after SIGKILL it would run on.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from flows import profiles
from flows.tied import tied


def has_server() -> bool:
    """Whether `PREFECT_API_URL` names a Prefect server, in the environment or in a profile of Prefect. Prefect is
    imported only if there is a file of profiles."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    if not profiles().is_file():
        return False
    from prefect.settings import PREFECT_API_URL

    return bool(PREFECT_API_URL.value())


def tie_server() -> None:
    """Tie the embedded server that this process will start to it, and let it answer this process and its children only;
    nothing if another server is configured."""
    if has_server():
        return
    from prefect.server.api import server
    from prefect.settings import PREFECT_API_AUTH_STRING

    def popen(args: list[str], *, env: Mapping[str, str], **options: Any) -> subprocess.Popen[Any]:
        if secret := PREFECT_API_AUTH_STRING.value():
            env = {**env, "PREFECT_SERVER_API_AUTH_STRING": secret}
        return subprocess.Popen(tied(args, number=signal.SIGKILL), env=env, **options)

    # Prefect has no setting for the command of the server.
    server.subprocess = SimpleNamespace(**vars(subprocess) | {"Popen": popen})  # type: ignore[assignment]
