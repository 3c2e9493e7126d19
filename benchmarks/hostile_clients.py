"""What clients that mean harm cost the others: `headstart serve` under connections and bodies that no program sends.

    python benchmarks/hostile_clients.py --model artifacts/finetuned/TASK/SYSTEM/classifier
    python benchmarks/hostile_clients.py --model DIR --connections 450

The server runs in a process of its own on 127.0.0.1 and serves the model in a directory. Measured are seconds until a
good request is answered while so many connections have sent half of their headers, half of a body, or nothing, and
while one body with very many rows is answered, with the status of that body and the largest memory of the server.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

START_SECONDS = 120.0
HEADERS = b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
#: What a client sends and then waits.
HALVES = {"nothing": b"", "half of the headers": HEADERS, "half of a body": HEADERS + b'\r\n{"inputs": ['}


@contextmanager
def serving(model: Path) -> Iterator[tuple[str, int]]:
    """The address of `/invocations` and the process of a server, which ends with the block."""
    command = [sys.executable, "-m", "components.cli", "serve", "--model", str(model), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        assert process.stderr is not None
        while not (line := process.stderr.readline()).startswith("http"):
            if not line:
                raise SystemExit(f"{model}: the server has ended")
        timer.cancel()
        threading.Thread(target=sys.stderr.writelines, args=[process.stderr], daemon=True).start()
        yield line.strip(), process.pid
    finally:
        timer.cancel()
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()


def ask(address: str, body: bytes = b'{"inputs": {"text": ["a"]}}', *, limit: float = 60.0) -> tuple[int, float]:
    """Status and seconds of a request; status 0: no answer."""
    started = time.perf_counter()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data=body), timeout=limit) as response:
            response.read()
            status = int(response.status)
    except urllib.error.HTTPError as error:
        status = error.code
    except OSError:
        status = 0
    return status, time.perf_counter() - started


@contextmanager
def half_open(address: str, connections: int, sent: bytes) -> Iterator[None]:
    """So many connections that have sent something and wait."""
    host, port = address.split("/")[2].rsplit(":", 1)
    with ExitStack() as stack:
        for _ in range(connections):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            with contextlib.suppress(OSError):  # closed by the server
                connection.sendall(sent)
        yield


def rows_body(megabytes: float) -> bytes:
    """A body with as many rows as fit: one letter each."""
    return b'{"inputs": {"text": [' + b'"a",' * int(megabytes * 1e6 / 4 - 10) + b'"a"]}}'


def beside(address: str, body: bytes) -> tuple[int, float, float]:
    """Status and seconds of a body, and the longest time that good requests beside it took."""
    result: list[tuple[int, float]] = []
    thread = threading.Thread(target=lambda: result.append(ask(address, body)))
    thread.start()
    longest = 0.0
    while thread.is_alive():
        longest = max(longest, ask(address)[1])
        time.sleep(0.01)
    thread.join()
    return *result[0], longest


def memory(process: int, *, peak: bool = True) -> float:
    """Megabytes of memory that a process has, or has had at most."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(rf"{'VmHWM' if peak else 'VmRSS'}:\s+(\d+)", status)
    assert found
    return int(found[1]) / 1000


def measure(model: Path, *, connections: int) -> dict[str, object]:
    """The figures, by what the clients do."""
    figures: dict[str, object] = {}
    with serving(model) as (address, process):
        ask(address)
        before = memory(process)
        for what, sent in HALVES.items():
            with half_open(address, connections, sent):
                status, seconds = ask(address)
            figures[f"{connections} connections, {what} sent"] = {"status": status, "seconds": round(seconds, 3)}
        body = rows_body(7.8)
        status, seconds, longest = beside(address, body)
        rows = body.count(b",") + 1
        figures[f"a body of {len(body) / 1e6:.1f} MB with {rows:,} rows"] = {
            "status": status,
            "seconds": round(seconds, 2),
            "longest good request": round(longest, 2),
            "memory in MB": [round(before), round(memory(process))],
        }
    return figures


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description="Figures of `headstart serve` under hostile clients.")
    parser.add_argument("--model", type=Path, required=True, help="directory of a classifier of one text")
    parser.add_argument("--connections", type=int, default=450)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    print(json.dumps(measure(arguments.model, connections=arguments.connections), indent=1))


if __name__ == "__main__":
    main()
