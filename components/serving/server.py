"""`headstart serve`: the champion of a task over HTTP."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import uvicorn

from components.core import threads
from components.core.errors import ConfigError
from components.core.processors import cores
from components.registry.drift.traffic import logged
from components.registry.tracking import connect
from components.serving.app import Service, create_app
from components.serving.challenger import Challenger
from components.serving.guard import Guard
from components.serving.http import TOKEN, address_of, configure, listen, names_of, token_for
from components.serving.limits import LIMITS, Limits
from components.serving.metrics import Metrics
from components.serving.models import ChampionFollower, FixedModel, Served, load
from components.settings.drift import DriftSettings
from components.settings.registry import RegistrySettings


@dataclass(frozen=True)
class Address:
    """Where a server listens: host, port (0: a free one), and further names of this machine that the header `Host` may
    have."""

    host: str = "127.0.0.1"
    port: int = 5001
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Trial:
    """A challenger: its version number, what it does (`components.serving.challenger`), and its fraction of the
    requests."""

    version: str
    mode: Literal["shadow", "canary"] = "shadow"
    share: float = 0.1


def serve(
    registry_settings: RegistrySettings,
    task: str,
    *,
    drift: DriftSettings,
    address: Address,
    trial: Trial | None = None,
    int8: bool = False,
    limits: Limits = LIMITS,
) -> None:
    """Serve a task's champion until SIGTERM or Ctrl-C.

    The port is free again within `Limits.shutdown_seconds`; running requests are answered first.
    """
    if trial is not None and not 0 < trial.share <= 1:
        raise ConfigError(f"--share must be above 0 and at most 1; found {trial.share:g}")
    listener = listen(address.host, address.port)
    threads.use(cores())
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
        poll_seconds=limits.poll_seconds,
        on_change=changed,
        on_failure=failed,
        observed=lambda served: replace(served, classifier=logged(served.classifier, served.version, task, drift)),
        int8=int8,
    )
    second = None
    if trial is not None:
        version = registry.get(registry_settings.model_name(task), trial.version)
        loaded = load(registry, version, int8=int8)
        second = Challenger(loaded, mode=trial.mode, share=trial.share, registry=registry, metrics=metrics)
        say(f"{trial.mode} of {version.label} on {trial.share:.0%} of the requests")
    guard = _guard(listener, address)
    _run(Service(follower, limits, metrics=metrics, guard=guard, challenger=second), listener, address.host)


def serve_directory(directory: Path, *, address: Address, int8: bool = False) -> None:
    """Serve the model of a directory, without registry, until SIGTERM or Ctrl-C. Rows are not logged."""
    listener = listen(address.host, address.port)
    threads.use(cores())
    metrics = Metrics()
    follower = FixedModel(directory, int8=int8)
    metrics.serve(follower.current)
    say(f"serving {directory}, digest {follower.current.version.digest[:12]}")
    _run(Service(follower, LIMITS, metrics=metrics, guard=_guard(listener, address)), listener, address.host)


def _guard(listener: socket.socket, address: Address) -> Guard:
    names = names_of(listener, address.host, address.names)
    return Guard.of(listener.getsockname()[0], names=names, token=token_for(listener))


def _run(service: Service, listener: socket.socket, host: str) -> None:
    config = configure(create_app(service), shutdown_seconds=service.settings.shutdown_seconds)
    service.follower.start()
    listener.listen()
    address = f"{address_of(listener, host)}/invocations"
    say(address)
    example = json.dumps({"inputs": [dict(service.follower.current.io.examples[0])]}, ensure_ascii=False)
    header = ""
    if service.guard.token:
        # A token that a person has set is not written into logs.
        token = "TOKEN" if os.environ.get(TOKEN, "").strip() else service.guard.token
        header = f" -H 'Authorization: Bearer {token}'"
        if token != "TOKEN":
            say(f"requests need this random token, since {TOKEN} is not set: {token}")
    say(f"  curl -s {address}{header} -d {shlex.quote(example)}")
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


def say(line: str) -> None:
    """Print a line of the server's log."""
    print(line, file=sys.stderr, flush=True)
