"""The flows: commands that run stages. Importing this package sets defaults for Prefect, which reads them on its first
import; variables that are already set take precedence."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def _home() -> Path:
    """The folder of Prefect's database and server, which all repositories of a user share; a temporary one if the user
    has no folder that can be written."""
    with suppress(RuntimeError):  # no HOME, and a user id without a name
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "headstart"
        present = next(each for each in (state, *state.parents) if os.path.exists(each))  # noqa: PTH110 raises nothing
        if os.access(present, os.W_OK):
            return state / "prefect"
    return Path(tempfile.gettempdir()) / f"headstart-{os.getuid()}"


os.environ["PREFECT_HOME"] = str(Path(os.environ.get("PREFECT_HOME") or _home()).expanduser().resolve())

_DEFAULTS = {
    # Also avoids a database-is-locked traceback at each start of a server.
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # Without an address a flow fails; it starts no server that `flows.server` does not know.
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    # Seconds between the signs of life of a run (`flows.notify`).
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # Pages of other origins get no answer from a server that is started here.
    "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
    "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "http://headstart.invalid",
    # The terminal shows the stages' output; Prefect's log records and tracebacks go to its server only.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    # Its clients print errors of their own while a server is started again.
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    "DVC_NO_ANALYTICS": "1",
}

for _name, _value in _DEFAULTS.items():
    os.environ.setdefault(_name, _value)
