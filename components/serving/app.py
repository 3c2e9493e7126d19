"""The HTTP interface of the server, as an ASGI application.

| path         | method | answer                                                                              |
|--------------|--------|-------------------------------------------------------------------------------------|
| /invocations | POST   | {"predictions": [row or {"error": reason}, ...], "model": {name, version, digest}}  |
| /model       | GET    | the served version, the columns of inputs and outputs, an example request           |
| /livez       | GET    | 200 while the predicting thread runs                                                 |
| /readyz      | GET    | 200 while requests are taken; 503 before the end                                     |
| /metrics     | GET    | Prometheus                                                                          |

A bad row is answered with its reason, next to the answers of the others; a request without any valid row has status
422. Errors are JSON: {"error": message}. Requests to another host, or from another site, are refused on every path.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from components.core.errors import DataError
from components.serving.batching import Answers, Batcher, OverloadedError
from components.serving.challenger import Challenger
from components.serving.http import Bodies, BodyError, Guard, Receive
from components.serving.metrics import Metrics
from components.serving.models import ChampionFollower, FixedModel, Served
from components.serving.requests import Rows, TooManyRowsError, read_rows

#: Paths that probes may call without the token.
OPEN = ("/livez", "/readyz")
JSON = b"application/json"


@dataclass(frozen=True)
class Limits:
    """Limits of the prediction server. None changes a prediction.

    Attributes:
        poll_seconds: seconds between two checks of the alias `champion`.
        batch_rows: maximum number of rows of a batch; requests that wait together share one, longer ones have several.
        queue_rows: maximum number of rows of a request (status 413), and of waiting rows (status 503).
        timeout_seconds: maximum seconds from receiving a request to its answer; then status 504.
        body_megabytes: maximum size of a request's body; larger ones are answered with status 413.
        row_characters: maximum number of characters of a row; longer rows are refused.
        shutdown_seconds: seconds that running requests get to end after SIGTERM.
    """

    poll_seconds: float = 10
    batch_rows: int = 64
    queue_rows: int = 4096
    timeout_seconds: float = 30
    body_megabytes: float = 8
    row_characters: int = 200_000
    shutdown_seconds: int = 8


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    kind: bytes = JSON
    header: tuple[bytes, bytes] | None = None


class Service:
    """All parts of a running server."""

    def __init__(
        self,
        follower: ChampionFollower | FixedModel,
        settings: Limits,
        *,
        metrics: Metrics,
        guard: Guard,
        challenger: Challenger | None = None,
    ) -> None:
        self.follower, self.settings, self.metrics = follower, settings, metrics
        self.challenger, self.guard = challenger, guard
        self.ready = True
        self.batcher = Batcher(
            batch_rows=settings.batch_rows, queue_rows=settings.queue_rows, on_batch=self._observe_batch
        )

    def _observe_batch(self, rows: int, seconds: float) -> None:
        self.metrics.batch_rows.observe(rows)
        self.metrics.batch_seconds.observe(seconds)
        self.metrics.waiting.set(self.batcher.waiting_rows)

    async def answer(self, body: bytes) -> Reply:
        """The answer to a body of /invocations."""
        settings = self.settings
        io = self.follower.current.io
        rows = read_rows(body, io, characters=settings.row_characters, most=settings.queue_rows)
        if not rows.valid:
            return self._reply(422, rows, self.follower.current, [])
        challenger = self.challenger if self.challenger is not None and self.challenger.takes() else None
        canary = challenger if challenger is not None and challenger.mode == "canary" else None
        started = time.monotonic()
        served, answers = await self.batcher.predict(
            rows.valid, lambda: canary.served if canary else self.follower.current, seconds=settings.timeout_seconds
        )
        if canary:
            canary.answered(len(answers), time.monotonic() - started)
        elif challenger:
            challenger.shadow(rows.valid, [answer["prediction"] if answer else None for answer in answers])
        return self._reply(200, rows, served, answers)

    def _reply(self, status: int, rows: Rows, served: Served, answers: Answers) -> Reply:
        outputs, collected = served.io.outputs, iter(answers)
        predictions: list[dict[str, Any]] = []
        confidences: list[float] = []
        refused = 0
        for fields, problem in zip(rows.fields, rows.problems, strict=True):
            answer = next(collected) if fields is not None else None
            if answer is None:
                predictions.append({"error": problem or "the row has no answer"})
                refused += 1
                continue
            predictions.append({name: answer[name] for name in outputs})
            if "confidence" in answer:
                confidences.append(answer["confidence"])
        version = served.version.number
        self.metrics.observe_rows(version, len(predictions) - refused, refused, confidences)
        content = {"predictions": predictions, "model": served.described}
        return Reply(status, orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY))

    def stop(self) -> None:
        """Follow the alias no more, record the challenger's counts. All requests have been answered."""
        self.ready = False
        self.follower.stop()
        self.batcher.stop()
        if self.challenger:
            self.challenger.stop()


class App:
    """The ASGI application of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._bodies = Bodies(int(service.settings.body_megabytes * 1e6))
        self._pages: dict[str, Callable[[], Reply]] = {
            "/model": self._model,
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
        }

    async def __call__(
        self, scope: Mapping[str, Any], receive: Receive, send: Callable[[dict[str, Any]], Awaitable[None]]
    ) -> None:
        started = time.perf_counter()
        # In reverse, so that of several headers with one name the first counts.
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        method, path = scope["method"], scope["path"]
        reply = self._refused(method, path, headers)
        if reply is None:
            reply = await self._invocations(headers, receive) if path == "/invocations" else self._pages[path]()
        if path == "/invocations":
            self._service.metrics.requests.labels(reply.status).inc()
            self._service.metrics.seconds.observe(time.perf_counter() - started)
        sent = [(b"content-length", b"%d" % len(reply.body)), (b"content-type", reply.kind)]
        if reply.header is not None:
            sent.append(reply.header)
        await send({"type": "http.response.start", "status": reply.status, "headers": sent})
        await send({"type": "http.response.body", "body": reply.body})

    def _refused(self, method: str, path: str, headers: Mapping[str, str]) -> Reply | None:
        guard = self._service.guard
        if (foreign := guard.foreign(method, headers)) is not None:
            return _error(*foreign)
        if guard.token and path not in OPEN and not guard.has_token(headers):
            problem = "the header Authorization needs `Bearer` and the server's token"
            return _error(401, problem, (b"www-authenticate", b"Bearer"))
        if path != "/invocations" and path not in self._pages:
            return _error(404, "no such path")
        expected = "POST" if path == "/invocations" else "GET"
        return None if method == expected else _error(405, f"send {expected}", (b"allow", expected.encode()))

    async def _invocations(self, headers: Mapping[str, str], receive: Receive) -> Reply:
        limits = self._service.settings
        try:
            async with self._bodies.read(headers, receive) as body:
                return await self._service.answer(body)
        except BodyError as error:
            return _error(error.status, str(error))
        except DataError as error:
            return _error(413 if isinstance(error, TooManyRowsError) else 400, str(error))
        except OverloadedError:
            return _error(503, "too many rows wait; try again", (b"retry-after", b"1"))
        except TimeoutError:
            return _error(504, f"no answer within {limits.timeout_seconds:g} s")
        except Exception as error:  # a defect: its name, but no traceback and no path
            return _error(500, f"the prediction failed ({type(error).__name__})")

    def _model(self) -> Reply:
        served = self._service.follower.current
        columns = {"inputs": dict(served.io.inputs), "outputs": dict(served.io.outputs)}
        example = {"inputs": [dict(row) for row in served.io.examples]}
        return Reply(200, orjson.dumps({**served.described, **columns, "example": example}))

    def _livez(self) -> Reply:
        alive = self._service.batcher.alive
        return Reply(200 if alive else 503, orjson.dumps({"alive": alive}))

    def _readyz(self) -> Reply:
        ready = self._service.ready
        content = {"ready": ready, "model": self._service.follower.current.described}
        return Reply(200 if ready else 503, orjson.dumps(content))

    def _metrics(self) -> Reply:
        return Reply(200, self._service.metrics.text(), b"text/plain; version=0.0.4; charset=utf-8")


def _error(status: int, message: str, header: tuple[bytes, bytes] | None = None) -> Reply:
    return Reply(status, orjson.dumps({"error": message}), header=header)
