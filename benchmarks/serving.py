"""Load on `headstart serve` compared with `mlflow models serve`: the same champion, one machine, one run.

    python benchmarks/serving.py                         # after make run; in the repository's root
    python benchmarks/serving.py --task aws-type --seconds 4

Each server runs in its own process with all cores; they take turns, one is idle (and started) while the other is
loaded. Clients are closed loops in one process: each sends a request with one text, waits for the answer, and sends the
next. For each number of clients, requests per second and the 50th and 99th percentile of the latency are the medians of
`--rounds` turns. The clients share the processor with the server, for both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from components.data.tasks.examples import read_split
from components.registry.champion import find_champion
from components.registry.tracking import connect
from components.reporting.recording import add_record_option, record
from components.reporting.results import Column
from components.settings.loading import load_params

CLIENTS = (1, 4, 16, 64)
START_SECONDS = 120.0
QUIET = subprocess.DEVNULL
HEAD = (
    "POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Content-Length: {length}\r\n\r\n"
)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server answers."""
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


async def client(port: int, bodies: Sequence[bytes], end: float, latencies: list[float], first: int) -> None:
    """Send requests over one connection until `end`; append the seconds of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = first
    while time.perf_counter() < end:
        body = bodies[turn % len(bodies)]
        turn += 1
        began = time.perf_counter()
        writer.write(HEAD.format(length=len(body)).encode() + body)
        header = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in header.split(b"\r\n", 1)[0]:
            raise SystemExit(f"the server answered {header[:200]!r}")
        lengths = [line for line in header.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        await reader.readexactly(int(lengths[0].partition(b":")[2]))
        latencies.append(time.perf_counter() - began)
    writer.close()


def load(port: int, bodies: Sequence[bytes], *, clients: int, seconds: float) -> tuple[float, float, float]:
    """Requests per second, and p50 and p99 of the latency in milliseconds."""
    latencies: list[float] = []

    async def all_clients() -> float:
        began = time.perf_counter()
        step = max(1, len(bodies) // clients)
        await asyncio.gather(
            *(client(port, bodies, began + seconds, latencies, number * step) for number in range(clients))
        )
        return time.perf_counter() - began

    took = asyncio.run(all_clients())
    p50, p99 = np.percentile(latencies, [50, 99]) * 1000
    return len(latencies) / took, float(p50), float(p99)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=3)
    add_record_option(parser)
    arguments = parser.parse_args()
    params = load_params()
    task = arguments.task or params.run.tasks[0]
    registry = connect(params.registry)
    version = find_champion(registry, task)
    rows = read_split(Path(params.run.out) / "examples" / task, "test").fields[:500]
    bodies = [json.dumps({"inputs": {"text": [text]}}).encode() for (text,) in rows]
    ports = {"headstart": free_port(), "mlflow": free_port()}
    ours = ["-m", "components.cli", "serve", "--task", task]
    theirs = ["-m", "mlflow", "models", "serve", "--env-manager", "local", "--host", "127.0.0.1"]
    theirs += ["--model-uri", f"models:/{version.name}/{version.number}"]
    commands = {
        name: [sys.executable, *command, "--port", str(ports[name])]
        for name, command in (("headstart", ours), ("mlflow", theirs))
    }
    health = {"headstart": "/readyz", "mlflow": "/ping"}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"MLFLOW_TRACKING_URI": registry.uri, "PATH": path}
    processes = {
        name: subprocess.Popen(command, env=environment, stdout=QUIET, stderr=QUIET, start_new_session=True)
        for name, command in commands.items()
    }
    try:
        for name, process in processes.items():
            wait_until_up(f"http://127.0.0.1:{ports[name]}{health[name]}", process)
            load(ports[name], bodies, clients=4, seconds=1)  # warm-up
        result: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
        for clients in CLIENTS:
            for _ in range(arguments.rounds):
                for name in processes:
                    turn = load(ports[name], bodies, clients=clients, seconds=arguments.seconds)
                    result.setdefault((name, clients), []).append(turn)
    finally:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    values = {}
    for clients in CLIENTS:
        row = {}
        for name in processes:
            rate, p50, p99 = (statistics.median(column) for column in zip(*result[name, clients], strict=True))
            print(f"{name:10} {clients:3} clients  {rate:7.1f} requests/s  p50 {p50:7.1f} ms  p99 {p99:7.1f} ms")
            row |= {f"{name}-rate": rate, f"{name}-p50": p50, f"{name}-p99": p99}
        row["ratio"] = row["headstart-rate"] / row["mlflow-rate"]
        values[f"{clients} client{'s' if clients > 1 else ''}"] = row
    record(
        arguments.record,
        title=f"Requests with one text, medians of {arguments.rounds} turns",
        row_title="load",
        columns=[
            *(
                Column(name=f"{name}-{what}", title=f"{name} {title}", format=".0f", unit=unit)
                for name in processes
                for what, title, unit in (("rate", "requests", "/s"), ("p50", "p50", " ms"), ("p99", "p99", " ms"))
            ),
            Column(name="ratio", title="requests, ratio", format=".1f", unit=" x"),
        ],
        values=values,
    )


if __name__ == "__main__":
    main()
