"""Fixtures of several packages, and the order of the tests."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from components.core.measurements import RUN_ID

#: No test asks the hub; those of `interchange/importing/test_hub.py` ask a server of their own.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

FOLDER = Path(__file__).parent
#: Tests that run first. Those that fork training processes run before Prefect and MLflow have run in their process,
#: because a fork of it then ends at once; after them the flows, which take longest, so that the last tests are short.
FIRST = ("pretraining", "training", "test_cluster.py", "models/layers/test_parallel.py", "flows")


def pytest_configure() -> None:
    """One Prefect server for all tests, beside the user's: the first test that needs it starts it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="headstart-prefect-")
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_PROFILES_PATH", "MLFLOW_TRACKING_URI"):
        os.environ.pop(name, None)


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    from flows.repository import try_lock

    folder = Path(os.environ["PREFECT_HOME"])
    with suppress(OSError, ValueError), (folder / "lock").open("r+") as file:
        if not try_lock(file):  # otherwise the process has ended, and its number may be that of another one
            os.kill(json.load(file)["pid"], signal.SIGTERM)
    shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _place(item: pytest.Item) -> tuple[int, bool]:
    """The rank of the folder, and whether the test needs the Prefect server: parallel test processes receive tests in
    sequences, and the server is started in as few of them as possible."""
    folders = (rank for rank, name in enumerate(FIRST) if item.path.is_relative_to(FOLDER / name))
    return next(folders, len(FIRST)), "prefect_server" in getattr(item, "fixturenames", ())


@pytest.fixture(autouse=True)
def _no_run_of_another_test() -> Iterator[None]:
    """A flow in the process of the tests leaves its id for its stages."""
    yield
    os.environ.pop(RUN_ID, None)


@contextmanager
def empty_s3() -> Iterator[int]:
    """The port of an S3 test server without buckets; servers of a process share their state."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        port = int(server.get_host_and_port()[1])
        with urlopen(Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST")):
            yield port
    finally:
        server.stop()


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """The address of an empty S3 test server, one per test module."""
    with empty_s3() as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the S3 test server, to which the environment refers."""
    import boto3

    names = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "DEFAULT_REGION", "ENDPOINT_URL", "EC2_METADATA_DISABLED")
    for name, value in zip(names, ("test", "test", "us-east-1", s3_server, "true"), strict=True):
        monkeypatch.setenv(f"AWS_{name}", value)
    return boto3.client("s3")


@pytest.fixture
def port() -> int:
    """A port that no program uses."""
    return free_port()


def git(root: Path, *arguments: str) -> str:
    """The output of a git command in a folder."""
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def dvc(root: Path, *arguments: str, code: int = 0) -> str:
    """The output of a command of DVC. `python` in the commands of stages is this interpreter."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "dvc", *arguments]
    done = subprocess.run(command, cwd=root, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def python(*arguments: object, cwd: Path | None = None, **variables: str) -> str:
    """What this interpreter prints for these arguments, in a process that imports this checkout."""
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parent)} | variables
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """The port of a web server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def until(reached: Callable[[], object], *, limit_s: float = 240, poll_s: float = 0.02) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(poll_s)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
