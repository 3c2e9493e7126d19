"""Environment variables of every process and within a block, and the account that runs this process."""

import getpass
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

#: MLflow reads these variables at import and at each load. Nothing is unpickled, whatever a user has set.
SAFE = {"MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false"}
#: The same, but existing values take precedence.
DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


def protect() -> None:
    """Set the variables of MLflow for this process and its children."""
    os.environ.update(SAFE)
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """A block with these variables, for the child processes that it starts; the values before it are restored."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def who() -> str:
    """`user@host` of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
