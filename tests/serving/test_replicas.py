"""Replicas of one server: what they answer, count and log together."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.core.errors import ConfigError, RegistryError
from components.data.tasks.kinds import find_kind
from components.learners.loading import load_model
from components.learners.prediction import predict_rows
from components.registry.drift.traffic import read_traffic
from components.registry.tracking import Version
from components.serving.server import Address, Trial, serve, supervise
from components.settings.registry import DriftSettings, RegistrySettings
from tests.conftest import until

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "compatibility" / "models"
REPLICAS = 2


class FolderRegistry:
    """A registry whose champion is the model that a file names."""

    settings = RegistrySettings(prefix="p")

    def __init__(self, file: Path) -> None:
        self._file = file

    def alias(self, name: str, alias: str) -> Version:
        number = self._file.read_text()
        return Version(name, number, "", "", {"digest": number * 8})


def replace_registry(file: Path) -> None:
    """Let the server of this process load stored models instead of registered ones."""
    from components.serving import models, server

    bundle = MODELS / "words-1" / "bundle"
    server.with_models = lambda settings: settings  # the registry has no database
    server.connect = lambda settings: FolderRegistry(file)
    models.load_version = lambda registry, version, **options: load_model(bundle)


#: Replicas import it as their main module, by which their registry is replaced, too.
SERVER = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from components.serving.app import Limits
from components.serving.server import Address, serve
from components.settings.registry import DriftSettings
from components.settings.registry import RegistrySettings
from tests.serving.test_replicas import replace_registry
replace_registry(Path("champion"))
if __name__ == "__main__":
    options = {{"drift": DriftSettings(), "limits": Limits(poll_seconds=0.1), "replicas": {REPLICAS}}}
    serve(RegistrySettings(), "t", address=Address(port=0), **options)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "champion").write_text("1")
    (tmp_path / "server.py").write_text(SERVER)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "server.py"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.wait()


def address_of(server: subprocess.Popen[str]) -> str:
    """The address, once all replicas listen."""
    lines: list[str] = []
    while len([line for line in lines if line.startswith(("http", "replica "))]) < REPLICAS:
        lines.append(server.stderr.readline())
        assert lines[-1], lines
    threading.Thread(target=server.stderr.read, daemon=True).start()
    return next(line for line in lines if line.startswith("http")).strip().removesuffix("/invocations")


def ask(address: str, content: bytes | None = None) -> str:
    """The answer over a connection of its own."""
    with urllib.request.urlopen(urllib.request.Request(address, data=content), timeout=60) as response:
        return str(response.read().decode())


def replicas_of(process: int) -> list[int]:
    """The processes that a process has started, without the tracker of resources."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.mark.slow
def test_replicas_answer_count_and_log_together(server, tmp_path):
    address, rows = address_of(server), 40
    bundle = load_model(MODELS / "words-1" / "bundle")
    texts = [dict(example) for example in find_kind(bundle.kind).io.examples]
    expected = [predict_rows(bundle, [find_kind(bundle.kind).io.parse(text)]) for text in texts]
    for number in range(rows):
        content = json.dumps({"inputs": [texts[number % 2]]}).encode()
        # A connection of its own, so that every replica has some.
        (answer,) = json.loads(ask(f"{address}/invocations", content))["predictions"]
        (predicted,) = expected[number % 2]
        assert predicted is not None and answer == {name: predicted[name] for name in answer}
    for _ in range(5):
        counts = ask(f"{address}/metrics")
        assert f'headstart_requests_total{{status="200"}} {rows}.0' in counts
        assert f'headstart_rows_total{{outcome="answered",version="1"}} {rows}.0' in counts
    folder = tmp_path / ".headstart" / "traffic"
    logged = read_traffic(folder, task="t", digest="1" * 8)
    assert len(logged.rows) == rows
    writers = {re.split("-", path.name)[1] for path in folder.rglob("*.rows")}
    assert len(writers) == REPLICAS, "each replica has answered"

    (tmp_path / "champion").write_text("2")
    until(lambda: {json.loads(ask(f"{address}/model"))["version"] for _ in range(12)} == {"2"}, limit_s=30)

    replicas = replicas_of(server.pid)
    assert len(replicas) == REPLICAS
    server.kill()
    server.wait()
    # Replicas end with the process that has started them.
    until(lambda: not any(Path(f"/proc/{process}").exists() for process in replicas), limit_s=20)


@pytest.fixture
def sleeping() -> Iterator[list[multiprocessing.process.BaseProcess]]:
    """Processes in place of replicas."""
    started = [multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,)) for _ in range(3)]
    for process in started:
        process.start()
    yield started
    for process in started:
        process.kill()


def test_a_replica_that_ends_ends_the_others(sleeping):
    sleeping[1].kill()
    with pytest.raises(RegistryError, match="a replica has ended"):
        supervise(sleeping, seconds=5)
    assert not any(process.is_alive() for process in sleeping)


def test_a_signal_ends_all_replicas(sleeping):
    before = signal.getsignal(signal.SIGTERM)
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGTERM]).start()
    supervise(sleeping, seconds=5)
    assert not any(process.is_alive() for process in sleeping)
    assert signal.getsignal(signal.SIGTERM) is before


def test_replicas_are_counted_and_have_no_challenger():
    for options, message in (
        ({"replicas": 0}, "--replicas must be at least 1"),
        ({"replicas": 2, "trial": Trial("2")}, "--challenger counts in one process"),
    ):
        with pytest.raises(ConfigError, match=message):
            serve(RegistrySettings(), "t", drift=DriftSettings(), address=Address(port=0), **options)
