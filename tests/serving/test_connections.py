"""Connections of a running server: time limits, their number, the token of servers that other machines reach."""

import contextlib
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

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Request, Response

from components.pages.app import PagesServer
from components.serving import http
from components.serving.http import Guard
from tests.pages.conftest import write_project

ROOT = Path(__file__).parents[2]
HEADERS = b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
#: What a client sends and then waits.
HALVES = {"nothing": b"", "half of the headers": HEADERS, "half of a body": HEADERS + b'\r\n{"inputs": ['}
MODEL = ROOT / "tests" / "compatibility" / "models" / "words-1" / "bundle"
#: `headstart serve --model` without the other commands; arguments: host, further names.
SERVER = f"""
import sys
from pathlib import Path
from components.serving.server import Address, serve_directory
address = Address(sys.argv[1], 0, sys.argv[2:])
serve_directory(Path({str(MODEL)!r}), address=address)
"""


#: Of the server that the tests share.
TOKEN = "secret-token"


def ask(address: str, *, token: str = TOKEN) -> tuple[int, float]:
    """Status and seconds of a request; status 0: no answer."""
    started = time.perf_counter()
    request = urllib.request.Request(address, b'{"inputs": {"text": ["a"]}}', {"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
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


class Started:
    """A server in a process of its own, and the lines that it prints until its address."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self.lines: list[str] = []
        kept = {"PATH": "", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | variables
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, *arguments], stderr=subprocess.PIPE, text=True, env=kept
        )
        while not self.lines or not self.lines[-1].startswith("  curl"):
            self.lines.append(self.process.stderr.readline().rstrip("\n"))
            assert self.lines[-1], self.lines
        (self.shown,) = [line for line in self.lines if line.startswith("http")]
        self.port = int(self.shown.rsplit(":", 1)[1].split("/")[0])
        self.address = f"http://127.0.0.1:{self.port}/invocations"
        self.later: list[str] = []
        threading.Thread(target=self.later.extend, args=[self.process.stderr], daemon=True).start()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[Started]:
    started = Started("127.0.0.1", **{http.TOKEN: TOKEN})
    yield started
    started.stop()


@pytest.mark.parametrize("sent", HALVES.values(), ids=list(HALVES))
def test_a_good_request_is_answered_beside_450_half_open_connections(sent, server):
    assert ask(server.address)[0] == 200
    with half_open(server.address, 450, sent):
        status, seconds = ask(server.address)
    print(f"450 connections, sent {sent!r}: status {status} after {seconds:.2f} s")
    assert status == 200 and seconds < 10
    assert ask(server.address)[0] == 200
    assert not server.later, "no traceback and no line for each"


def test_clients_that_end_within_a_body_leave_no_traceback(server):
    with half_open(server.address, 20, HALVES["half of a body"]):
        pass
    assert ask(server.address)[0] == 200
    assert not server.later


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server with short time limits that answers with the number of bytes of a body."""
    monkeypatch.setattr(http, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(http, "BODY_SECONDS", 0.6)
    app, bodies = FastAPI(), http.Bodies(1000)

    @app.post("/invocations")
    async def size(request: Request) -> Response:
        async with bodies.read(request.headers, request.receive) as body:
            return Response(str(len(body)))

    listener = http.listen("127.0.0.1", 0)
    server = uvicorn.Server(http.configure(app, shutdown_seconds=1))
    thread = threading.Thread(target=server.run, args=[[listener]])
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join()
    listener.close()


def seconds_until_closed(port: int, *parts: bytes, pause: float = 0.0) -> float:
    """How long a connection stays open that sends the parts one after another."""
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            while connection.recv(1000):
                pass
        except OSError:
            pass
    return time.monotonic() - started


GOOD = b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"


def test_headers_and_bodies_have_a_time_limit(limited):
    assert 0.25 < seconds_until_closed(limited) < 3
    assert 0.25 < seconds_until_closed(limited, HEADERS) < 3
    assert 0.55 < seconds_until_closed(limited, HEADERS + b"\r\nabc") < 4
    # A byte now and then does not extend the limits, neither in the first request nor in a later one.
    slowly = [HEADERS[place : place + 1] for place in range(40)]
    assert seconds_until_closed(limited, *slowly, pause=0.05) < 2.5
    assert seconds_until_closed(limited, GOOD, *slowly, pause=0.05) < 2.5
    assert seconds_until_closed(limited, HEADERS + b"\r\n", *[b"a"] * 60, pause=0.05) < 4


def test_a_request_within_the_limits_is_answered(limited):
    with socket.create_connection(("127.0.0.1", limited), timeout=10) as connection:
        for _ in range(3):  # one connection
            connection.sendall(GOOD[:20])
            time.sleep(0.05)
            connection.sendall(GOOD[20:])
            answer = b""
            while not answer.endswith(b"\r\n\r\n3"):
                answer += connection.recv(1000)


@pytest.mark.parametrize(
    "sent",
    [
        HEADERS + b"X: " + b"a" * 400_000,
        HEADERS + b"X: a\r\n" * 40_000,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"a" * 400_000,
    ],
)
def test_headers_and_trailers_have_a_limit(sent, limited, monkeypatch):
    monkeypatch.setattr(http, "HEADER_SECONDS", 60)
    monkeypatch.setattr(http, "BODY_SECONDS", 60)
    assert seconds_until_closed(limited, sent) < 5
    with socket.create_connection(("127.0.0.1", limited), timeout=10) as connection:  # chunks of one byte
        connection.sendall(b"POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"1\r\na\r\n" * 900 + b"0\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_the_connection_that_has_waited_longest_is_closed(limited, monkeypatch):
    monkeypatch.setattr(http, "HEADER_SECONDS", 60)
    monkeypatch.setattr(http, "CONNECTIONS", 3)
    with ExitStack() as stack:
        opened = []
        for _ in range(4):
            opened.append(stack.enter_context(socket.create_connection(("127.0.0.1", limited), timeout=2)))
            time.sleep(0.05)
        with contextlib.suppress(ConnectionResetError):
            assert opened[0].recv(1) == b""
        opened[1].sendall(GOOD)
        assert b" 200 " in opened[1].recv(1000)


def test_bodies_that_are_too_large_alone_or_together(monkeypatch):
    monkeypatch.setattr(http, "BODIES", 2)
    bodies, statuses = http.Bodies(10), []

    async def read(number: int) -> None:
        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"x" * number, "more_body": False}

        try:
            async with bodies.read({}, receive):
                statuses.append(200)
                if len(statuses) < 3:
                    await read(number)
        except http.BodyError as error:
            statuses.append(error.status)

    import asyncio

    asyncio.run(read(11))
    assert statuses == [413]
    statuses.clear()
    asyncio.run(read(9))
    assert statuses == [200, 200, 503], "the third body while two are answered"
    asyncio.run(read(9))
    assert statuses[3] == 200, "they no longer count"


def test_a_server_that_others_reach_makes_a_token():
    started = Started("0.0.0.0", "serve.example")
    try:
        (line,) = [line for line in started.lines if "random token" in line]
        token = line.rsplit(" ", 1)[1]
        assert len(token) >= 32 and f"Bearer {token}" in started.lines[-1]
        assert ask(started.address, token="")[0] == 401
        good = {"Authorization": f"Bearer {token}"}
        for host, status in (("serve.example", 200), ("10.1.2.3:80", 200), ("evil.example", 421)):
            answer = httpx.post(started.address, content=b'["a"]', headers=good | {"Host": host})
            assert answer.status_code == status, host
        assert httpx.get(f"http://127.0.0.1:{started.port}/readyz").status_code == 200
    finally:
        started.stop()


def test_a_token_that_is_set_is_not_printed(server):
    assert "Authorization: Bearer TOKEN" in server.lines[-1] and TOKEN not in "".join(server.lines)
    assert ask(server.address, token="other")[0] == 401
    assert ask(server.address)[0] == 200


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("127.0.0.2", True), ("localhost", True), ("", False), ("0", False)]
)
def test_which_sockets_others_reach(host, local, monkeypatch):
    listener = http.listen(host, 0)
    try:
        assert http.is_local(listener) is local
        for empty in (None, "", " "):
            monkeypatch.delenv(http.TOKEN, raising=False) if empty is None else monkeypatch.setenv(http.TOKEN, empty)
            assert bool(http.token_for(listener)) is not local
        guard = Guard.of(listener.getsockname()[0], names=http.names_of(listener, host, ["desk.example"]))
        assert guard.any_address is not local
        assert guard.knows("Desk.example") and not guard.knows("") and not guard.knows("evil.example")
        assert guard.knows("192.168.1.5:5002") is guard.knows("[fe80::1]:5002") is not local
    finally:
        listener.close()


def test_the_pages_have_the_same_limits(tmp_path):
    write_project(tmp_path)
    pages = PagesServer(tmp_path / "params.yaml", root=tmp_path, port=0)
    running = threading.Event()
    thread = threading.Thread(target=pages.run, kwargs={"started": running.set})
    thread.start()
    running.wait(10)
    try:
        with half_open(pages.address, 450, HEADERS):
            assert httpx.get(f"{pages.address}static/style.css", timeout=10).status_code == 200
        assert httpx.get(pages.address, headers={"Host": "evil.example"}).status_code == 421
    finally:
        pages.stop()
        thread.join(20)
