"""The flows: thin layers over DVC (what is up to date) and the stages (what is done).

Importing this package sets defaults for Prefect, which reads them when it is first imported. A variable that is
already set wins, so a Prefect server (`PREFECT_API_URL`), another home or more logs are chosen as everywhere.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_HOME = Path(__file__).resolve().parents[1] / ".headstart" / "prefect"

if "PREFECT_HOME" not in os.environ:
    # Prefect makes its home when it is imported, but not the folder above it.
    with contextlib.suppress(OSError):
        _HOME.parent.mkdir(exist_ok=True)

_DEFAULTS = {
    # Everything of a clone stays in the clone.
    "PREFECT_HOME": str(_HOME),
    # The first start of the embedded server creates its database: 10 to 20 seconds, where 20 is Prefect's limit.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
    # Off, and with it a database-is-locked traceback at each start of the embedded server.
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # The terminal gets the stages' own lines; Prefect's copies go to its server. Prefect's tracebacks too.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "DVC_NO_ANALYTICS": "1",
}

for _name, _value in _DEFAULTS.items():
    os.environ.setdefault(_name, _value)
