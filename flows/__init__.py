"""The flows: commands that run stages. Importing this package sets defaults for Prefect, which reads them on its first
import; variables that are already set take precedence."""

import contextlib
import os
from pathlib import Path

_HOME = Path(__file__).resolve().parents[1] / ".headstart" / "prefect"

if "PREFECT_HOME" not in os.environ:
    # Prefect creates its home on import, but not the parent folder.
    with contextlib.suppress(OSError):
        _HOME.parent.mkdir(exist_ok=True)

_DEFAULTS = {
    # Prefect's state is stored in the clone, not in the user's home folder.
    "PREFECT_HOME": str(_HOME),
    # Also avoids a database-is-locked traceback at each start of a server.
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # Pages of other origins get no answer from a server that is started here.
    "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
    "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "http://headstart.invalid",
    # The terminal shows the stages' output; Prefect's log records and tracebacks go to its server only.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "DVC_NO_ANALYTICS": "1",
}

for _name, _value in _DEFAULTS.items():
    os.environ.setdefault(_name, _value)


def profiles() -> Path:
    """The file of Prefect's profiles, which need not exist."""
    return Path(os.environ.get("PREFECT_PROFILES_PATH") or f"{os.environ['PREFECT_HOME']}/profiles.toml").expanduser()
