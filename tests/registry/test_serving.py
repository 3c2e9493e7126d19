"""Registered models in MLflow's command line and servers, outside of the repository."""

import contextlib
import json
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from components.learners.prediction import predict_rows
from components.registry.champion import load_champion
from components.registry.explain import history
from components.registry.tracking import Registry
from components.settings.registry import RegistrySettings
from tests.conftest import free_port
from tests.registry.aliases import contend

START_SECONDS = 120


def environment(**changes: str) -> dict[str, str]:
    """An environment in which nothing refers to the repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "PYTHON"))}
    base = {
        "OMP_NUM_THREADS": "1",
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # an activated environment
    }
    return kept | base | changes


@contextmanager
def running(command: list[str], *, port: int, where: Path, health: str, **changes: str) -> Iterator[str]:
    """A server in a session of its own, which is killed as a process group."""
    log = where / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *command, "--host", "127.0.0.1", "--port", str(port)],
            cwd=where,
            env=environment(**changes),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{health}", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                assert process.poll() is None and time.monotonic() < end, log.read_text()
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_models_serve_returns_labels_with_the_installed_code(pipeline, tmp_path):
    pipeline.registered(starts=["adapted"])
    pipeline.promoted()
    where = tmp_path / "elsewhere"
    where.mkdir()
    port = free_port()
    command = ["models", "serve", "-m", "models:/headstart-letters@champion", "--env-manager", "local"]
    tracking = pipeline.settings.tracking
    with running(command, port=port, where=where, health="/ping", MLFLOW_TRACKING_URI=tracking) as address:
        request = urllib.request.Request(
            f"{address}/invocations",
            data=json.dumps({"dataframe_split": {"columns": ["text"], "data": [["a"], ["bb"], [" "], ["c"]]}}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answers = json.loads(response.read(), parse_constant=pytest.fail)["predictions"]  # NaN is not JSON

    assert [answer["label"] for answer in answers] == ["x", "y", None, "z"]
    assert answers[0]["probabilities"].keys() == {"x", "y", "z"}
    assert answers[0]["confidence"] == answers[0]["probabilities"]["x"] > 0.9
    assert sum(answers[0]["probabilities"].values()) == pytest.approx(1.0)


@contextmanager
def called(registry: Registry) -> Iterator[queue.Queue[dict[str, Any]]]:
    """The bodies of the calls of a webhook that MLflow's server makes when an alias is set."""
    bodies: queue.Queue[dict[str, Any]] = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        registry.client.create_webhook("champion", url, ["model_version_alias.created"])
        try:
            yield bodies
        finally:
            server.shutdown()


@pytest.mark.slow
def test_registration_and_promotion_with_an_mlflow_server(pipeline, tmp_path, monkeypatch):
    port = free_port()
    store = ["--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db", "--artifacts-destination", f"{tmp_path}/served"]
    with running(
        ["server", "-w", "1", *store],
        port=port,
        where=tmp_path,
        health="/health",
        MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false",
        MLFLOW_DISABLE_TELEMETRY="true",
        MLFLOW_WEBHOOK_ALLOWED_SCHEMES="http",
        MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS="true",
    ) as address:
        # The environment variable takes precedence over params.yaml.
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        first = pipeline.registered(starts=["adapted"])
        assert pipeline.registered(starts=["adapted"]) == first
        with called(pipeline.registry) as calls:
            decision = pipeline.promoted()
            expected = {"name": "headstart-letters", "alias": "champion", "version": "1"}
            assert calls.get(timeout=30)["data"] == expected

        assert first["tracking"] == decision["tracking"] == address
        assert [model["version"] for model in first["models"]] == ["1", "1"]
        assert decision["decisions"]["letters"]["verdict"] == "promote"
        version = pipeline.registry.alias("headstart-letters", "champion")
        assert version is not None and version.number == "1"
        assert list((tmp_path / "served").rglob("head.safetensors"))
        assert not (tmp_path / "mlruns").exists()

        monkeypatch.delenv("MLFLOW_TRACKING_URI")
        settings = RegistrySettings(tracking=address)
        loaded = load_champion(settings, "letters")
        assert [answer["label"] for answer in predict_rows(loaded, [("a",), ("b",)]) if answer] == ["x", "y"]

        # The server and its database give the same history.
        direct = RegistrySettings(tracking=f"sqlite:///{tmp_path}/mlflow.db")
        assert history(settings) == history(direct)
        assert len(history(settings)) == 2
        context = multiprocessing.get_context("spawn")
        contend(address, rounds=2, starter=context.Process, barrier=context.Barrier(2), results=context.Queue())
