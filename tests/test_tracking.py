"""Addresses without a usable registry: each gives its own message within seconds, without MLflow's retries."""

import http.server
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError, ReadTimeoutError

from components.core.errors import RegistryError, RegistryUnavailableError
from components.registry.tracking import Registry, Version, connect, metric_key
from components.settings.registry import RegistrySettings
from tests.conftest import answering


@contextmanager
def server_with(status: int) -> Iterator[int]:
    """The port of a web server that answers every request with a status."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with answering(Handler) as port:
        yield port


@pytest.fixture
def other_server() -> Iterator[int]:
    """A web server without /health."""
    with server_with(404) as port:
        yield port


@pytest.fixture
def no_http() -> Iterator[int]:
    """A server that responds with something other than HTTP."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def answer() -> None:
            with suppress(OSError):  # nobody has asked
                client, _ = server.accept()
                client.recv(1024)
                client.sendall(b"E\x00\x00 go away\n\n")
                client.close()

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]


def test_no_server_at_the_address(port):
    settings = RegistrySettings(tracking=f"http://127.0.0.1:{port}")

    message = (
        rf"^registry.tracking is http://127.0.0.1:{port}: no MLflow server at this address "
        r"\(.*Connection refused\); start it with `mlflow server`, or unset the address to use a local database file$"
    )
    with pytest.raises(RegistryError, match=message):
        connect(settings)


def test_the_environment_variable_takes_precedence_and_is_named(port, monkeypatch, tmp_path):
    settings = RegistrySettings(tracking=f"sqlite:///{tmp_path}/mlflow.db")
    assert settings.address == settings.tracking

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    with pytest.raises(RegistryError, match=rf"^MLFLOW_TRACKING_URI is http://127.0.0.1:{port}: no MLflow server"):
        connect(settings)
    assert not (tmp_path / "mlflow.db").exists()


def test_a_server_that_ends_after_the_connection(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with server_with(200) as port:
        registry = connect(RegistrySettings(tracking=f"http://127.0.0.1:{port}"))
    version = Version("model", "1", "", "run")
    for request in (
        lambda: registry.alias("model", "champion"),
        lambda: registry.location(version),
        lambda: registry.find_number("model", "1"),
        lambda: registry.versions("model"),
    ):
        with pytest.raises(RegistryUnavailableError):
            request()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    return connect(RegistrySettings(tracking=f"sqlite:///{tmp_path_factory.mktemp('registry') / 'mlflow.db'}"))


@pytest.mark.parametrize("step", ["list_artifacts", "download_artifacts"])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EndpointConnectionError(endpoint_url="http://store"), RegistryUnavailableError),
        (ReadTimeoutError(endpoint_url="http://store"), RegistryUnavailableError),
        (NoCredentialsError(), RegistryError),
        (FileNotFoundError("gone"), RegistryError),
    ],
)
def test_an_object_store_that_does_not_answer(error, kind, step, registry, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("mlflow.artifacts.list_artifacts", lambda **_: [])
    monkeypatch.setattr(f"mlflow.artifacts.{step}", fail)
    monkeypatch.setattr(registry.client, "get_model_version_download_uri", lambda *_: "s3://bucket/model")
    with pytest.raises(RegistryError, match=r"model/1: its files cannot be downloaded from s3://") as raised:
        registry.download(Version("model", "1", "", "run"), tmp_path / "files")
    assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://127.0.0.1:{other_server}", r"the server at this address is not MLflow \(HTTP 404 on /health\)$"),
        ("http://127.0.0.1:{no_http}", r"the server at this address does not speak HTTP"),
        (
            "sqlite:///{folder}/text",
            r"text is not a SQLite database; restore a copy of it, or move it away",
        ),
        ("sqlite:///{folder}/text/mlflow.db", r"text/mlflow.db cannot be used \((File exists|Not a directory)\)$"),
        ("mlruns", r"MLflow no longer stores models in a folder; use sqlite:///mlruns/mlflow.db$"),
    ],
)
def test_what_is_at_the_address_is_no_registry(
    address: str, message: str, other_server: int, no_http: int, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("something else entirely")
    with pytest.raises(RegistryError, match=message):
        connect(RegistrySettings(tracking=address.format(other_server=other_server, no_http=no_http, folder=tmp_path)))
    assert text.read_text() == "something else entirely"


def test_no_database_at_the_address(port):
    uri = f"postgresql://headstart:secret@127.0.0.1:{port}/mlflow"
    with pytest.raises(RegistryError, match=r"^registry.tracking is postgresql://headstart:\*\*\*@127") as caught:
        connect(RegistrySettings(tracking=uri))
    assert "no database server at this address" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_password_in_the_address_is_neither_sent_to_the_probe_nor_shown(other_server, port):
    with pytest.raises(
        RegistryError, match=rf"http://me:\*\*\*@127.0.0.1:{other_server}: the server at this address is not MLflow"
    ):
        connect(RegistrySettings(tracking=f"http://me:secret@127.0.0.1:{other_server}"))
    with pytest.raises(RegistryError, match=rf"http://me:\*\*\*@127.0.0.1:{port}/mlflow: no MLflow server"):
        connect(RegistrySettings(tracking=f"http://me:secret@127.0.0.1:{port}/mlflow"))


def test_unpickling_is_disabled():
    assert os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"


def test_metric_keys_are_converted_to_names_that_mlflow_accepts():
    assert metric_key("per-class/f1.macro (ไทย)") == "per-class/f1.macro _ไทย_"
    assert len(metric_key("x" * 300)) == 250
