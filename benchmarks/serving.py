"""Load on `headstart serve` compared with `mlflow models serve`, and with Ray Serve: the same champion, one machine.

    python benchmarks/serving.py                         # after make run; in the repository's root
    python benchmarks/serving.py --task aws-type --seconds 4 --beside mlflow ray      # needs `pip install ray[serve]`

Each server has all cores; they take turns, all are started, and one is loaded while the others are idle. Clients are
closed loops in one process: each sends a request with one text, waits for the answer, and sends the next. For each
number of clients, requests per second and the 50th and 99th percentile of the latency are the medians of `--rounds`
turns; so is the server's time of the processor per request, which depends less on what else the machine does. The
clients share the processor with the server, for all alike.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Column, add_record_option, record
from components.data.tasks.examples import read_split
from components.registry.champion import find_champion
from components.registry.tracking import Registry, connect
from components.settings.loading import load_params

START_SECONDS = 300.0
QUIET = subprocess.DEVNULL
Processes = dict[str, subprocess.Popen[bytes]]
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
HEAD = b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
HEALTH = {"headstart": "/readyz", "mlflow": "/ping", "ray": "/-/healthz"}


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def wait_until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None:
                raise SystemExit(f"the server of {url} has ended with status {process.returncode}") from None
            time.sleep(0.2)
    raise SystemExit(f"{url}: no answer within {START_SECONDS:g} s")


class Client:
    """A connection that sends a request, waits for the answer, and sends the next."""

    def __init__(self, port: int, requests: Sequence[bytes], first: int) -> None:
        self.requests, self.turn, self.answer = requests, first, b""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self) -> None:
        """Send the next request."""
        request = self.requests[self.turn % len(self.requests)]
        self.turn += 1
        self.began = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Read what has arrived; whether the answer is complete."""
        self.answer += self.socket.recv(1 << 16)
        head, separator, body = self.answer.partition(b"\r\n\r\n")
        if not separator:
            return False
        if b" 200 " not in head[:20]:
            raise SystemExit(f"the server answered {self.answer[:200]!r}")
        length = LENGTH.search(head)
        if not body.endswith(b"0\r\n\r\n") if length is None else len(body) < int(length[1]):
            return False
        self.answer = b""
        return True


def load(port: int, requests: Sequence[bytes], *, clients: int, seconds: float) -> tuple[int, float, float, float]:
    """Number of requests, requests per second, and p50 and p99 of the latency in milliseconds."""
    latencies: list[float] = []
    step = max(1, len(requests) // clients)
    opened = [Client(port, requests, number * step) for number in range(clients)]
    by_file = {client.socket.fileno(): client for client in opened}
    with select.epoll() as ready:
        for file in by_file:
            ready.register(file, select.EPOLLIN)
        began = time.perf_counter()
        for client in opened:
            client.send()
        waiting = clients
        while waiting:
            for file, _ in ready.poll():
                client = by_file[file]
                if client.receive():
                    now = time.perf_counter()
                    latencies.append(now - client.began)
                    if now - began < seconds:
                        client.send()
                    else:
                        waiting -= 1
        took = time.perf_counter() - began
    for client in opened:
        client.socket.close()
    p50, p99 = np.percentile(latencies, [50, 99]) * 1000
    return len(latencies), len(latencies) / took, float(p50), float(p99)


def commands(beside: Sequence[str], task: str, *, replicas: int, registry: Registry) -> dict[str, list[str]]:
    """Server -> its command without the port."""
    version = find_champion(registry, task)
    uri = f"models:/{version.name}/{version.number}"
    ours = ["-m", "components.cli", "serve", "--task", task, "--replicas", str(replicas)]
    others = {
        "mlflow": ["-m", "mlflow", "models", "serve", "--env-manager", "local", "--model-uri", uri],
        "ray": [str(Path(__file__).with_name("ray_serving.py")), task, "--replicas", str(replicas)],
    }
    return {"headstart": ours} | {name: others[name] for name in beside}


def used(process: subprocess.Popen[bytes]) -> float:
    """Seconds of the processor that a server and the processes that it has started have used."""
    parent = psutil.Process(process.pid)
    times = []
    for part in (parent, *parent.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times.append(part.cpu_times())
    return sum(time.user + time.system for time in times)


@contextlib.contextmanager
def started(servers: Mapping[str, Sequence[str]], registry: Registry) -> Iterator[tuple[dict[str, int], Processes]]:
    """Server -> its port, and its process, while all of them run."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"MLFLOW_TRACKING_URI": registry.uri, "PATH": path}
    ports: dict[str, int] = {}
    processes: Processes = {}
    try:
        for name, command in servers.items():
            # One after another: some take further ports, which would be free until all have started.
            ports[name] = free_port()
            full = [sys.executable, *command, "--port", str(ports[name])]
            processes[name] = subprocess.Popen(
                full, env=environment, stdout=QUIET, stderr=QUIET, start_new_session=True
            )
            wait_until_up(f"http://127.0.0.1:{ports[name]}{HEALTH[name]}", processes[name])
        yield ports, processes
    finally:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="")
    parser.add_argument("--beside", nargs="+", choices=["mlflow", "ray"], default=["mlflow"])
    parser.add_argument("--replicas", type=int, default=1, help="of headstart and ray")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=3)
    add_record_option(parser)
    arguments = parser.parse_args()
    params = load_params()
    task = arguments.task or params.run.tasks[0]
    registry = connect(params.registry)
    rows = read_split(Path(params.run.out) / "examples" / task, "test").fields[:500]
    requests = [
        HEAD % len(body) + body for (text,) in rows for body in [json.dumps({"inputs": {"text": [text]}}).encode()]
    ]
    servers = commands(arguments.beside, task, replicas=arguments.replicas, registry=registry)
    result: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    with started(servers, registry) as (ports, processes):
        for name in servers:
            load(ports[name], requests, clients=4, seconds=1)  # warm-up
        for clients in arguments.clients:
            for _ in range(arguments.rounds):
                for name in servers:
                    before = used(processes[name])
                    count, *turn = load(ports[name], requests, clients=clients, seconds=arguments.seconds)
                    spent = 1000 * (used(processes[name]) - before) / count
                    result.setdefault((name, clients), []).append((*turn, spent))
    values = {}
    for clients in arguments.clients:
        row = {}
        for name in servers:
            rate, p50, p99, spent = (statistics.median(column) for column in zip(*result[name, clients], strict=True))
            row |= {f"{name}-rate": rate, f"{name}-p50": p50, f"{name}-p99": p99, f"{name}-spent": spent}
            ratio = row["headstart-rate"] / rate
            row |= {f"{name}-ratio": ratio} if name in arguments.beside else {}
            print(
                f"{name:10} {clients:3} clients  {rate:7.1f} requests/s  p50 {p50:7.1f} ms  p99 {p99:7.1f} ms  "
                f"{spent:6.2f} ms of the processor; headstart has {ratio:.2f} times its requests"
            )
        values[f"{clients} client{'s' if clients > 1 else ''}"] = row
    shown = (
        ("rate", "requests", ".0f", "/s"),
        ("p50", "p50", ".1f", " ms"),
        ("p99", "p99", ".1f", " ms"),
        ("spent", "processor", ".2f", " ms"),
    )
    record(
        arguments.record,
        title=f"Requests with one text, medians of {arguments.rounds} turns",
        row_title="load",
        columns=[
            *(
                Column(name=f"{name}-{what}", title=f"{name} {title}", format=form, unit=unit)
                for name in servers
                for what, title, form, unit in shown
            ),
            *(
                Column(name=f"{name}-ratio", title=f"headstart / {name}", format=".1f", unit=" x")
                for name in arguments.beside
            ),
        ],
        values=values,
    )


if __name__ == "__main__":
    main()
