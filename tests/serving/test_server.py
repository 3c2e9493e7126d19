"""The server: answers, limits, following the alias, the challenger, and its end."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from hypothesis import HealthCheck, given, settings

from components.core.errors import RegistryError
from components.registry.drift.traffic import read_traffic
from components.registry.tracking import Version
from components.serving.app import App, Limits, Service
from components.serving.challenger import Challenger
from components.serving.http import Guard, configure, listen
from components.serving.metrics import Metrics
from components.serving.models import ChampionFollower, Served
from components.settings.registry import RegistrySettings
from tests.conftest import until
from tests.serving.test_requests import BODIES

#: Of a server that the tests' client calls `test`.
GUARD = Guard.of("127.0.0.1", names=["test"])


class Letters:
    """Labels a text by its first letter; `gate` holds every batch until it is set."""

    kind = "classification"
    labels = ("a", "b")

    def __init__(self, *, flipped: bool = False) -> None:
        self.flipped, self.gate, self.batches = flipped, threading.Event(), []
        self.gate.set()

    def answer(self, rows: Sequence[tuple[str, ...]], batch_size: int = 0) -> list[Any]:
        self.gate.wait(10)

        self.batches.append(len(rows))
        if rows[0][0] == "crash":
            raise ZeroDivisionError("a path: /secret")
        first = [text[0] == "a" for (text,) in rows]
        return [np.array([0.9, 0.1] if yes != self.flipped else [0.1, 0.9], dtype=np.float32) for yes in first]


class FakeRegistry:
    """A registry with one model, whose champion is `present`."""

    settings = RegistrySettings(prefix="p")
    address = "fake"

    def __init__(self, models: dict[str, Letters]) -> None:
        self.models, self.present, self.tags = models, "1", {}
        self.problem: Exception | None = None

    def alias(self, name: str, alias: str) -> Version | None:
        assert (name, alias) == ("p-t", "champion")
        if self.problem:
            raise self.problem
        return version(self.present) if self.present else None

    def set_tag(self, of: Version, key: str, value: str) -> None:
        self.tags[of.number, key] = value


def version(number: str) -> Version:
    return Version("p-t", number, "", "", {"digest": number * 8})


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> FakeRegistry:
    fake = FakeRegistry({"1": Letters(), "2": Letters(flipped=True)})
    monkeypatch.setattr("components.serving.models.load_version", lambda registry, of, **_: registry.models[of.number])
    return fake


@pytest.fixture
def made() -> Iterator[list[Service]]:
    services: list[Service] = []
    yield services
    for service in services:
        for model in service.follower._registry.models.values():
            model.gate.set()
        service.stop()


def service_of(
    registry: Any, made: list[Service], *, guard: Guard = GUARD, challenger: Any = None, **settings: Any
) -> Service:
    metrics = Metrics()
    follower = ChampionFollower(registry, "t", poll_seconds=60, on_change=metrics.serve)
    service = Service(follower, Limits(**settings), metrics=metrics, guard=guard)
    if challenger:
        service.challenger = Challenger(
            Served(version("2"), registry.models["2"]), registry=registry, metrics=metrics, **challenger
        )
    made.append(service)
    return service


@lru_cache(maxsize=1)
def loop() -> asyncio.AbstractEventLoop:
    """The event loop of all services, as a server has one."""
    result = asyncio.new_event_loop()
    threading.Thread(target=result.run_forever, daemon=True).start()
    return result


def call(
    service: Service, *requests: tuple[str, str, Any], headers: dict[str, str] | None = None
) -> list[httpx.Response]:
    """Answers to (method, path, content) requests that are sent at once."""

    async def all_of_them() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=App(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            sent = [
                client.request(method, path, content=body if isinstance(body, bytes | None) else json.dumps(body))
                for method, path, body in requests
            ]
            return list(await asyncio.gather(*sent))

    return asyncio.run_coroutine_threadsafe(all_of_them(), loop()).result(60)


def post(service: Service, *texts: Any) -> httpx.Response:
    (response,) = call(service, ("POST", "/invocations", {"inputs": {"text": list(texts)}}))
    return response


def test_answers_name_the_version_and_bad_rows_have_their_reason(registry, made):
    service = service_of(registry, made)
    response = post(service, "apple", None, "berry", 5)
    assert response.status_code == 200
    first, missing, second, number = response.json()["predictions"]
    assert (first["label"], second["label"]) == ("a", "b")
    assert first["confidence"] == pytest.approx(0.9) and set(first["probabilities"]) == {"a", "b"}
    assert missing == {"error": "'text' is missing or null"}
    assert number == {"error": "'text' is int, expected text"}
    assert response.json()["model"] == {"name": "p-t", "version": "1", "digest": "11111111"}
    assert post(service, None).status_code == 422


def test_limits_have_a_status_each(registry, made):
    service = service_of(registry, made, body_megabytes=0.001, timeout_seconds=0.3, queue_rows=2)
    (large,) = call(service, ("POST", "/invocations", b"x" * 2000))
    assert (large.status_code, large.json()["error"]) == (413, "the body has more than 0.001 MB; send less at once")
    (many,) = call(service, ("POST", "/invocations", {"inputs": ["a"] * 3}))
    assert many.status_code == 413 and "3 rows, more than 2;" in many.json()["error"]
    (bad,) = call(service, ("POST", "/invocations", b"{"))
    assert bad.status_code == 400
    crash = post(service, "crash")
    assert (crash.status_code, crash.json()) == (500, {"error": "the prediction failed (ZeroDivisionError)"})
    registry.models["1"].gate.clear()
    body = {"inputs": {"text": ["a", "b"]}}
    statuses = [response.status_code for response in call(service, *[("POST", "/invocations", body)] * 3)]
    registry.models["1"].gate.set()
    # The last finds the queue full; the first is computed, and too late.
    assert set(statuses) == {503, 504}
    assert post(service, "a").status_code == 200


def test_requests_that_wait_share_a_batch(registry, made):
    service = service_of(registry, made, batch_rows=4)
    model = registry.models["1"]
    model.batches.clear()
    model.gate.clear()
    threading.Timer(0.3, model.gate.set).start()
    body = {"inputs": {"text": ["a", "b"]}}
    responses = call(service, *[("POST", "/invocations", body)] * 5)
    assert [[row["label"] for row in response.json()["predictions"]] for response in responses] == [["a", "b"]] * 5
    assert max(model.batches) == 4 and sum(model.batches) == 10


@pytest.mark.parametrize("path", ["/invocations", "/model", "/metrics", "/livez", "/readyz", "/nothing"])
def test_another_host_is_refused_on_every_path(path, registry, made):
    service = service_of(registry, made)
    method = "POST" if path == "/invocations" else "GET"
    for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", "[::1", "evil@localhost", "localhost/evil"):
        (answer,) = call(service, (method, path, b'["a"]'), headers={"Host": host})
        assert answer.status_code == 421 and "is not this server" in answer.json()["error"], host
    for host in ("localhost:5001", "127.0.0.1", "[::1]:80", "TEST"):
        (answer,) = call(service, (method, path, b'["a"]'), headers={"Host": host})
        assert answer.status_code == (404 if path == "/nothing" else 200), host


@pytest.mark.parametrize(
    "header",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://test:1"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_requests_of_other_sites_are_refused(header, registry, made):
    service = service_of(registry, made)
    for kind in ("text/plain", "application/json", "application/x-www-form-urlencoded"):
        (answer,) = call(service, ("POST", "/invocations", b'["a"]'), headers={"Content-Type": kind, **header})
        assert answer.status_code == 403, kind
    assert not registry.models["1"].batches[1:]  # of the start
    (answer,) = call(service, ("POST", "/invocations", b'["a"]'), headers={"Origin": "http://test"})
    assert answer.status_code == 200


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=BODIES)
def test_no_body_is_an_error_of_the_server(content, registry, made):
    if not made:
        service_of(registry, made)
    (answer,) = call(made[0], ("POST", "/invocations", json.dumps(content).encode()))
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, answer.text


def test_a_token(registry, made):
    service = service_of(registry, made, guard=Guard.of("127.0.0.1", names=["test"], token="secret"))
    paths = ["/model", "/metrics", "/livez", "/readyz"]
    answers = call(service, *[("GET", path, None) for path in paths])
    assert [answer.status_code for answer in answers] == [401, 401, 200, 200]
    right = call(service, *[("GET", path, None) for path in paths], headers={"Authorization": "Bearer secret"})
    assert [answer.status_code for answer in right] == [200] * 4
    (wrong,) = call(service, ("GET", "/model", None), headers={"Authorization": "Bearer secrets"})
    assert wrong.status_code == 401


def test_metrics_and_readiness(registry, made):
    service = service_of(registry, made)
    post(service, "apple", None)
    (answer,) = call(service, ("GET", "/metrics", None))
    for line in (
        'headstart_requests_total{status="200"} 1.0',
        'headstart_rows_total{outcome="answered",version="1"} 1.0',
        'headstart_rows_total{outcome="refused",version="1"} 1.0',
        'headstart_model{digest="11111111",name="p-t",version="1"} 1.0',
        'headstart_confidence_count{version="1"} 1.0',
    ):
        assert line in answer.text
    service.ready = False
    live, ready = call(service, ("GET", "/livez", None), ("GET", "/readyz", None))
    assert (live.status_code, ready.status_code) == (200, 503)


def test_the_champion_is_followed_and_stays_if_the_registry_fails(registry, made):
    service = service_of(registry, made)
    follower = service.follower
    failures: list[str] = []
    follower._on_failure = failures.append
    assert not follower.check()
    registry.present = "2"
    assert follower.check()
    assert post(service, "apple").json()["model"]["version"] == "2"
    registry.present = ""
    assert not follower.check()
    registry.problem = RegistryError("no server")
    assert not follower.check()
    assert failures == ["t: the alias champion is gone; p-t/2 stays", "no server"]
    assert post(service, "apple").json()["predictions"][0]["label"] == "b"


def test_no_request_fails_while_the_champion_changes(registry, made):
    service = service_of(registry, made)
    statuses: list[int] = []
    stop = threading.Event()

    def load():
        while not stop.is_set():
            statuses.append(post(service, "apple").status_code)

    client = threading.Thread(target=load)
    client.start()
    for number in ("2", "1") * 10:
        registry.present = number
        assert service.follower.check()
    stop.set()
    client.join()
    assert statuses and set(statuses) == {200}


def test_a_shadow_predicts_a_share_and_its_agreement_is_recorded(registry, made):
    service = service_of(registry, made, challenger={"mode": "shadow", "share": 0.5})
    for _ in range(8):
        assert post(service, "apple", "berry").json()["model"]["version"] == "1"
    challenger = service.challenger
    until(lambda: challenger.counts.rows == 8, limit_s=10)
    challenger.record()
    assert (challenger.counts.rows, challenger.counts.agree) == (8, 0)
    assert registry.tags["2", "shadow.agreement"] == "0.0000"
    assert (registry.tags["2", "shadow.rows"], registry.tags["2", "shadow.share"]) == ("8", "0.5")


def test_a_canary_answers_its_share(registry, made):
    service = service_of(registry, made, challenger={"mode": "canary", "share": 0.25})
    versions = [post(service, "apple").json()["model"]["version"] for _ in range(8)]
    assert versions.count("2") == 2
    service.challenger.record()
    assert registry.tags["2", "canary.rows"] == "2"


def test_waiting_requests_are_answered_before_the_end(registry, made):
    service = service_of(registry, made, batch_rows=1)
    model, listener = registry.models["1"], listen("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/invocations"
    server = uvicorn.Server(configure(App(service), shutdown_seconds=8))
    running = threading.Thread(target=server.run, args=[[listener]])
    running.start()
    until(lambda: server.started)
    model.gate.clear()
    with ThreadPoolExecutor(3) as pool:
        sent = [pool.submit(httpx.post, address, content=b'["a"]', timeout=30) for _ in range(3)]
        until(lambda: service.batcher.waiting_rows == 2)
        server.should_exit = True
        time.sleep(0.3)
        model.gate.set()
        assert [answer.result().json()["predictions"][0]["label"] for answer in sent] == ["a"] * 3
    running.join(10)
    assert not running.is_alive()


def test_a_request_of_two_models_and_many_rows_is_answered_in_order(registry, made):
    """Requests for both models wait together, and each has rows left over from a batch."""
    service = service_of(registry, made, batch_rows=3, challenger={"mode": "canary", "share": 0.5})
    body = {"inputs": {"text": ["a", "b", "b", "a", "b"]}}
    answers = call(service, *[("POST", "/invocations", body)] * 4)
    labels = {"1": ["a", "b", "b", "a", "b"], "2": ["b", "a", "a", "b", "a"]}
    for answer in answers:
        content = answer.json()
        assert [row["label"] for row in content["predictions"]] == labels[content["model"]["version"]]
    assert sorted(answer.json()["model"]["version"] for answer in answers) == ["1", "1", "2", "2"]


def test_a_port_in_use():
    first = listen("127.0.0.1", 0)
    assert first.proto == socket.IPPROTO_TCP  # asyncio sets TCP_NODELAY on connections of such sockets only
    first.listen()
    port = first.getsockname()[1]
    with pytest.raises(RegistryError, match=rf"127.0.0.1:{port}: cannot listen on this address"):
        listen("127.0.0.1", port)
    first.close()
    listen("127.0.0.1", port).close()


SERVER = """
import sys
from types import SimpleNamespace
sys.path.insert(0, sys.argv[1])
import components.serving.models as models, components.serving.server as server
from components.settings.registry import DriftSettings
from components.settings.registry import RegistrySettings
from tests.serving.test_server import FakeRegistry, Letters
server.with_models = lambda settings: settings  # the registry has no database
server.connect = lambda settings: FakeRegistry({"1": Letters()})
models.load_version = lambda registry, of, **_: registry.models[of.number]
server.serve(RegistrySettings(), "t", drift=DriftSettings(), address=server.Address(port=0))
"""


def test_sigterm_ends_the_process_and_frees_the_port(tmp_path):
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(root)], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        address = ""
        while not address:
            line = process.stderr.readline()
            assert line, "the server ended"
            address = line.strip() if line.startswith("http") else ""
        request = urllib.request.Request(address, data=b'{"inputs": {"text": ["apple", null]}}')
        with urllib.request.urlopen(request, timeout=30) as response:
            assert json.loads(response.read())["predictions"][0]["label"] == "a"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(address, data=b"{"), timeout=30)
        assert caught.value.code == 400
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
        logged = read_traffic(tmp_path / ".headstart/traffic", task="t", digest="11111111")
        assert logged.rows["characters"].tolist() == [5]
        port = int(address.split(":")[2].split("/")[0])
        listen("127.0.0.1", port).close()
    finally:
        process.kill()
        process.wait()
