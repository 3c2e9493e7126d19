"""One Ray session on this machine for all stages of a run. A process of its own starts it (`python -m
components.cluster.session FILE`), writes its address to the file, and ends it when its standard input is closed: when
the run ends, however it ends."""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from components.core.artifacts import json_of, write_atomic
from components.core.environment import variables
from components.core.errors import TrainingError
from components.core.processors import cores
from components.settings.cluster import ClusterSettings

#: Variable with the path of the file that holds the address of the run's session, once that has started.
SESSION: Final = "HEADSTART_RAY"
#: Seconds after which a session that has not started is given up, between two looks at its file, and for its end.
START_S: Final = 120.0
POLL_S: Final = 0.1
END_S: Final = 15.0
#: Size of the object store, slightly above Ray's minimum (75 MiB), because it holds no large objects.
OBJECT_STORE_BYTES: Final = 80 * 2**20

#: Environment variables, set before ray is imported unless the user has set them. Ray Train's variables save seconds at
#: every start.
RAY_ENVIRONMENT: Final = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "120",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # With Ray's default of 15, Ray's own processes would have priority over training.
    "RAY_worker_niceness": "0",
    # Workers start with the environment of their training; idle ones would be of no use to it.
    "RAY_prestart_worker_first_driver": "0",
}


class SessionError(TrainingError):
    """No Ray session has started on this machine."""


def address_of(settings: ClusterSettings) -> str:
    """Address of the Ray cluster. RAY_ADDRESS takes precedence, as in Ray's tools."""
    return os.environ.get("RAY_ADDRESS", settings.address)


def prepare(*, local: bool) -> None:
    """Set the environment of Ray, for this process and those that it starts."""
    # Nodes of a cluster can be taken away; this machine cannot.
    for name, value in (RAY_ENVIRONMENT | {"RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": str(int(not local))}).items():
        os.environ.setdefault(name, value)
    if local and "RAY_AUTH_MODE" not in os.environ:
        # A random token: other users of this machine cannot reach the session, and no stale one is joined.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def session(settings: ClusterSettings, *, needed: bool = True) -> Iterator[None]:
    """A block with one Ray session on this machine. It starts in the background; processes that the block starts
    connect to it (`ray_cluster.connected`). Nothing is started if it is not `needed`, if the settings name a cluster or
    the local launcher, or inside of another such block."""
    if not needed or settings.launcher != "ray" or address_of(settings) != "local" or SESSION in os.environ:
        yield
        return
    prepare(local=True)
    with tempfile.TemporaryDirectory(prefix="headstart-session-") as folder:
        file = Path(folder) / "address.json"
        process = subprocess.Popen(
            [sys.executable, "-m", "components.cluster.session", str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": python_path()},
        )
        try:
            with variables({SESSION: str(file)}):
                yield
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process of a session; with force if it does not end by itself, and if it still starts."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def python_path() -> str:
    """PYTHONPATH of a process that imports this package."""
    package = Path(__file__).resolve().parents[2]
    return os.pathsep.join(part for part in (str(package), os.environ.get("PYTHONPATH")) if part)


def session_address() -> str:
    """The address of the run's session, when it has started.

    Raises:
        SessionError: it has not started, or not within `START_S` seconds after its process.
    """
    file = Path(os.environ[SESSION])
    while not file.is_file():
        if not file.parent.is_dir() or time.time() - file.parent.stat().st_mtime > START_S:
            raise SessionError(f"Ray has not started within {START_S:g} seconds")
        time.sleep(POLL_S)
    started = json_of(file)
    if started["error"]:
        raise SessionError(f"Ray has not started ({started['error']})")
    return str(started["address"])


def main() -> None:
    """Start a session, write its address or the error to a file, and end it with the standard input."""
    import ray

    file = Path(sys.argv[1])
    try:
        ray.init(
            address="local",
            num_cpus=cores(),
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
        started = {"address": ray.get_runtime_context().gcs_address, "error": ""}
    except Exception as error:  # whatever it is, the trainings run without Ray
        lines = str(error).split("\n")
        started = {"address": "", "error": lines[0] or type(error).__name__}
    with suppress(OSError):
        write_atomic(file, json.dumps(started))
    sys.stdin.buffer.read()
    ray.shutdown()


if __name__ == "__main__":
    main()
