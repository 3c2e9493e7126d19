"""`headstart serve`: the champion of a task over HTTP, by one process or by several replicas."""

import json
import multiprocessing
import os
import shlex
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal

import uvicorn

from components.core import threads
from components.core.errors import ConfigError, RegistryError
from components.core.processors import cores
from components.data.tasks.data import Fields
from components.data.tasks.task_io import TaskIO
from components.registry.drift.traffic import logged
from components.registry.tracking import connect
from components.serving.app import App, Limits, Service
from components.serving.challenger import Challenger
from components.serving.http import TOKEN, Guard, address_of, configure, listen, names_of, token_for
from components.serving.metrics import SHARED, Metrics
from components.serving.models import ChampionFollower, FixedModel, Load, Served, load
from components.settings.registry import DriftSettings, RegistrySettings, with_models


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


#: Metrics -> what answers, and the challenger.
Build = Callable[[Metrics], tuple[ChampionFollower | FixedModel, Challenger | None]]


def serve(
    registry_settings: RegistrySettings,
    task: str,
    *,
    drift: DriftSettings,
    address: Address,
    trial: Trial | None = None,
    load: Load = load,
    limits: Limits | None = None,
    replicas: int = 1,
    sample: Fields = (),
) -> None:
    """Serve a task's champion until SIGTERM or Ctrl-C. The port is free again within `Limits.shutdown_seconds`; running
    requests are answered first. Every replica is a process with the whole model, which follows the alias, writes to the
    same log of rows, and has its share of the cores and of the connections. `load` loads a version.
    `sample`: a row of the task, which the example request has."""
    if trial is not None and not 0 < trial.share <= 1:
        raise ConfigError(f"--share must be above 0 and at most 1; found {trial.share:g}")
    if trial is not None and replicas > 1:
        raise ConfigError("--challenger counts in one process; serve it without --replicas")
    limits = limits or Limits()
    poll = limits.poll_seconds
    build = partial(_champion, registry_settings, task, drift=drift, trial=trial, load=load, poll_seconds=poll)
    _run(build, address, limits, replicas, sample)


def serve_directory(
    directory: Path, *, address: Address, int8: bool = False, error: float | None = None, replicas: int = 1
) -> None:
    """Serve the model of a directory (`load_model`), without registry, until SIGTERM or Ctrl-C. Rows are not logged."""
    _run(partial(_directory, partial(FixedModel, directory, int8=int8, error=error)), address, Limits(), replicas)


def _champion(
    settings: RegistrySettings,
    task: str,
    metrics: Metrics,
    *,
    drift: DriftSettings,
    trial: Trial | None,
    load: Load,
    poll_seconds: float,
) -> tuple[ChampionFollower, Challenger | None]:
    registry = connect(with_models(settings))

    def changed(served: Served) -> None:
        metrics.serve(served)
        say(f"serving {served.version.label}, digest {served.version.digest[:12]}")

    def failed(message: str) -> None:
        metrics.failures.inc()
        say(f"the champion stays: {message}")

    follower = ChampionFollower(
        registry,
        task,
        poll_seconds=poll_seconds,
        on_change=changed,
        on_failure=failed,
        observed=lambda served: replace(served, classifier=logged(served.classifier, served.version, task, drift)),
        load=load,
    )
    if trial is None:
        return follower, None
    version = registry.get(settings.model_name(task), trial.version)
    loaded = load(registry, version)
    say(f"{trial.mode} of {version.label} on {trial.share:.0%} of the requests")
    return follower, Challenger(loaded, mode=trial.mode, share=trial.share, registry=registry, metrics=metrics)


def _directory(read: Callable[[], FixedModel], metrics: Metrics) -> tuple[FixedModel, None]:
    fixed = read()
    metrics.serve(fixed.current)
    say(f"serving {fixed.current.version.name}, digest {fixed.current.version.digest[:12]}")
    return fixed, None


def _run(build: Build, address: Address, limits: Limits, replicas: int, sample: Fields = ()) -> None:
    if replicas < 1:
        raise ConfigError(f"--replicas must be at least 1; found {replicas}")
    listener = listen(address.host, address.port)
    names = names_of(listener, address.host, address.names)
    guard = Guard.of(listener.getsockname()[0], names=names, token=token_for(listener))
    if replicas == 1:
        _serve(build, listener, address.host, guard, limits, sample=sample)
        return
    port = listener.getsockname()[1]
    # The port was free; from here on the replicas share it.
    listener.close()
    with listen(address.host, port, shared=True), tempfile.TemporaryDirectory() as folder:
        os.environ[SHARED] = folder
        # A new interpreter reads the variable before the metrics are made, and has no locks of other threads.
        context = multiprocessing.get_context("spawn")
        address = replace(address, port=port)
        started = [
            context.Process(
                target=_replica, args=(build, address, guard, limits, max(1, cores() // replicas), number == 0)
            )
            for number in range(replicas)
        ]
        for process in started:
            process.start()
        supervise(started, seconds=limits.shutdown_seconds)


def supervise(replicas: Sequence[multiprocessing.process.BaseProcess], *, seconds: int) -> None:
    """Wait for a signal, or for a replica that ends by itself, then end all replicas."""
    stopping = threading.Event()

    def stop(*_: object) -> None:
        stopping.set()
        for process in replicas:
            process.terminate()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        wait([process.sentinel for process in replicas])
        if failed := not stopping.is_set():
            stop()
        for process in replicas:
            process.join(seconds + 2)
            process.kill()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if failed:
        raise RegistryError("a replica has ended; its last lines say why")


def _replica(build: Build, address: Address, guard: Guard, limits: Limits, usable: int, speaks: bool) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, daemon=True).start()
    with listen(address.host, address.port, shared=True) as listener:
        _serve(build, listener, address.host, guard, limits, usable=usable, speaks=speaks)


def _serve(
    build: Build,
    listener: socket.socket,
    host: str,
    guard: Guard,
    limits: Limits,
    *,
    usable: int | None = None,
    speaks: bool = True,
    sample: Fields = (),
) -> None:
    threads.use(usable or cores())
    metrics = Metrics()
    follower, challenger = build(metrics)
    service = Service(follower, limits, metrics=metrics, guard=guard, challenger=challenger)
    follower.start()
    listener.listen()
    if speaks:
        _introduce(service, address_of(listener, host), sample)
    else:
        say(f"replica {os.getpid()} listens")
    try:
        _Server(configure(App(service), shutdown_seconds=limits.shutdown_seconds), service).run(sockets=[listener])
    finally:
        service.stop()
        listener.close()


def example_of(io: TaskIO, sample: Fields) -> dict[str, Any]:
    """An input as JSON: a row of the task, or the example of its kind if there is no row."""
    names = list(io.inputs)
    if len(names) == 1 and io.inputs[names[0]] == "texts" and sample:
        return {names[0]: list(sample)}
    fits = len(names) == len(sample) and set(io.inputs.values()) == {"text"}
    return dict(zip(names, sample, strict=True)) if fits else dict(io.examples[0])


def _introduce(service: Service, address: str, sample: Fields) -> None:
    """Print the address, and a command with an example request."""
    address, header = f"{address}/invocations", ""
    say(address)
    example = json.dumps({"inputs": [example_of(service.follower.current.io, sample)]}, ensure_ascii=False)
    if service.guard.token:
        # A token that a person has set is not written into logs.
        token = "TOKEN" if os.environ.get(TOKEN, "").strip() else service.guard.token
        header = f" -H 'Authorization: Bearer {token}'"
        if token != "TOKEN":
            say(f"requests need this random token, since {TOKEN} is not set: {token}")
    say(f"  curl -s {address}{header} -d {shlex.quote(example)}")


class _Server(uvicorn.Server):
    """Reports that it is not ready before it stops accepting connections."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: object) -> None:
        self._service.ready = False
        super().handle_exit(sig, frame)  # type: ignore[arg-type]


def say(line: str) -> None:
    """Print a line of the server's log."""
    print(line, file=sys.stderr, flush=True)
