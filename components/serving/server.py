"""`headstart serve`: the champion of a task over HTTP."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import uvicorn

from components.drift.logged import logged
from components.errors import ConfigError, RegistryError
from components.processors import cores
from components.serving.app import Service, create_app
from components.serving.challenger import Challenger
from components.serving.metrics import Metrics
from components.serving.models import ChampionFollower, FixedModel, Served, load
from components.settings.drift import DriftSettings
from components.settings.registry import RegistrySettings
from components.settings.serve import ServeSettings
from components.tracking import connect
from components.training import threads

#: Environment variable with the token that requests need.
TOKEN = "HEADSTART_TOKEN"
LOCAL = ("127.0.0.1", "localhost", "::1")


def serve(
    registry_settings: RegistrySettings,
    task: str,
    *,
    settings: ServeSettings,
    drift: DriftSettings,
    host: str = "127.0.0.1",
    port: int = 5001,
    challenger: str = "",
    mode: Literal["shadow", "canary"] = "shadow",
    share: float = 0.1,
    int8: bool = False,
) -> None:
    """Serve a task's champion until SIGTERM or Ctrl-C.

    The port is free again within `serve.shutdown_seconds`; running requests are answered first.

    Args:
        registry_settings: `params.registry`.
        task: name of the task.
        settings: `params.serve`.
        drift: `params.drift`: whether and where served rows are logged.
        host: address to listen on.
        port: port to listen on.
        challenger: version number of a second model; empty: none.
        mode: what the challenger does (`components.serving.challenger`).
        share: fraction of the requests for the challenger.
        int8: whether Transformers are quantised, as of `load_version`.

    Raises:
        RegistryError: no registry, no champion or challenger, or the port is in use.
        ArtifactError: the files of a version differ from the registered ones.
        ConfigError: the share is not between 0 and 1.
    """
    if not 0 < share <= 1:
        raise ConfigError(f"--share must be above 0 and at most 1; found {share:g}")
    token = _token(host)
    listener = listen(host, port)
    threads.own(cores())
    registry = connect(registry_settings)
    metrics = Metrics()

    def changed(served: Served) -> None:
        metrics.serve(served)
        say(f"serving {served.version.label}, digest {served.version.digest[:12]}")

    def failed(message: str) -> None:
        metrics.failures.inc()
        say(f"the champion stays: {message}")

    follower = ChampionFollower(
        registry,
        task,
        poll_seconds=settings.poll_seconds,
        on_change=changed,
        on_failure=failed,
        observed=lambda served: replace(served, classifier=logged(served.classifier, served.version, task, drift)),
        int8=int8,
    )
    second = None
    if challenger:
        version = registry.get(registry_settings.model_name(task), challenger)
        second = Challenger(
            load(registry, version, int8=int8), mode=mode, share=share, registry=registry, metrics=metrics
        )
        say(f"{mode} of {version.label} on {share:.0%} of the requests")
    _run(Service(follower, settings, metrics=metrics, challenger=second, token=token), listener, settings, host)


def serve_directory(
    directory: Path, *, settings: ServeSettings, host: str = "127.0.0.1", port: int = 5001, int8: bool = False
) -> None:
    """Serve the model of a directory, without registry, until SIGTERM or Ctrl-C. Rows are not logged.

    Args:
        directory: of a classifier, such as that of an export.
        settings: `params.serve`.
        host: address to listen on.
        port: port to listen on.
        int8: as of `load_model`.

    Raises:
        RegistryError: the port is in use.
        ArtifactError: the directory is incomplete or altered.
    """
    token = _token(host)
    listener = listen(host, port)
    threads.own(cores())
    metrics = Metrics()
    follower = FixedModel(directory, int8=int8)
    metrics.serve(follower.current)
    say(f"serving {directory}, digest {follower.current.version.digest[:12]}")
    _run(Service(follower, settings, metrics=metrics, token=token), listener, settings, host)


def _token(host: str) -> str:
    token = os.environ.get(TOKEN, "")
    if host not in LOCAL and not token:
        say(f"warning: {host} can be reached from other machines and no token is set ({TOKEN})")
    return token


def _run(service: Service, listener: socket.socket, settings: ServeSettings, host: str) -> None:
    config = uvicorn.Config(
        create_app(service), log_level="warning", timeout_graceful_shutdown=settings.shutdown_seconds, access_log=False
    )
    service.follower.start()
    listener.listen()
    address = f"http://{host}:{listener.getsockname()[1]}/invocations"
    say(address)
    example = json.dumps({"inputs": [dict(service.follower.current.io.examples[0])]}, ensure_ascii=False)
    say(f"  curl -s {address} -d {shlex.quote(example)}")
    try:
        _Server(config, service).run(sockets=[listener])
    finally:
        service.stop()
        listener.close()


class _Server(uvicorn.Server):
    """Reports that it is not ready before it stops accepting connections."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: object) -> None:
        """Called by SIGTERM and SIGINT."""
        self._service.ready = False
        super().handle_exit(sig, frame)  # type: ignore[arg-type]


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address; port 0 takes a free one.

    Raises:
        RegistryError: the port is in use, or the address does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio disables Nagle's algorithm on accepted connections; else answers wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # A port with connections in TIME_WAIT counts as free.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise RegistryError(
            f"{host}:{port}: cannot listen on this address ({error.strerror}); stop the process that uses it, or "
            "choose another port"
        ) from error
    return listener


def say(line: str) -> None:
    """Print a line of the server's log."""
    print(line, file=sys.stderr, flush=True)
