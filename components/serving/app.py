"""The HTTP interface of the server.

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

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from components.core.errors import DataError
from components.serving.batching import Batcher, OverloadedError
from components.serving.batching import Request as Waiting
from components.serving.challenger import Challenger
from components.serving.guard import Guard
from components.serving.http import Bodies, BodyError
from components.serving.limits import Limits
from components.serving.metrics import Metrics
from components.serving.models import ChampionFollower, FixedModel, Served
from components.serving.requests import Rows, TooManyRowsError, read_rows

#: Paths that probes may call without the token.
OPEN = ("/livez", "/readyz")


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

    async def answer(self, body: bytes | bytearray) -> tuple[int, dict[str, Any]]:
        """Status and content of the answer to a body of /invocations."""
        io, settings = self.follower.current.io, self.settings
        rows = read_rows(body, io, characters=settings.row_characters, most=settings.queue_rows)
        if not rows.valid:
            return 422, self._content(rows, self.follower.current, [])
        takes = self.challenger is not None and self.challenger.takes()
        canary = self.challenger if takes and self.challenger and self.challenger.mode == "canary" else None
        started = time.monotonic()
        waiting = Waiting(
            rows.valid,
            choose=lambda: canary.served if canary else self.follower.current,
            deadline=started + settings.timeout_seconds,
        )
        future = asyncio.wrap_future(self.batcher.submit(waiting))
        served, answers = await asyncio.wait_for(future, settings.timeout_seconds)
        if canary:
            canary.answered(len(answers), time.monotonic() - started)
        elif takes and self.challenger:
            self.challenger.shadow(rows.valid, [answer["prediction"] if answer else None for answer in answers])
        return 200, self._content(rows, served, answers)

    def _content(self, rows: Rows, served: Served, answers: list[dict[str, Any] | None]) -> dict[str, Any]:
        version, outputs, collected = served.version.number, served.io.outputs, iter(answers)
        predictions: list[dict[str, Any]] = []
        for fields, problem in zip(rows.fields, rows.problems, strict=True):
            answer = next(collected) if fields is not None else None
            if answer is None:
                predictions.append({"error": problem or "the row has no answer"})
                self.metrics.rows.labels("refused", version).inc()
                continue
            predictions.append({name: answer[name] for name in outputs})
            self.metrics.rows.labels("answered", version).inc()
            if "confidence" in answer:
                self.metrics.confidence.labels(version).observe(answer["confidence"])
        return {"predictions": predictions, "model": served.described}

    def stop(self) -> None:
        """Take no further requests, answer those that wait, record the challenger's counts."""
        self.ready = False
        self.follower.stop()
        self.batcher.stop(seconds=self.settings.shutdown_seconds)
        if self.challenger:
            self.challenger.stop()


def create_app(service: Service) -> FastAPI:
    """The application of a service."""
    app = FastAPI(title="Headstart", docs_url=None, redoc_url=None, openapi_url=None)
    bodies, guard = Bodies(int(service.settings.body_megabytes * 1e6)), service.guard

    @app.middleware("http")
    async def observe(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        started = time.perf_counter()
        path = request.url.path
        response: Response
        if (foreign := guard.foreign(request)) is not None:
            response = _error(*foreign)
        elif guard.token and path not in OPEN and not guard.has_token(request):
            response = _error(401, "the header Authorization needs `Bearer` and the server's token")
            response.headers["WWW-Authenticate"] = "Bearer"
        else:
            response = await call_next(request)
        if path == "/invocations":
            service.metrics.requests.labels(str(response.status_code)).inc()
            service.metrics.seconds.observe(time.perf_counter() - started)
        return response

    @app.post("/invocations")
    async def invocations(request: Request) -> Response:
        try:
            async with bodies.read(request) as body:
                status, content = await service.answer(body)
        except Exception as error:
            return _refusal(error, service.settings)
        return JSONResponse(content, status_code=status)

    @app.get("/model")
    async def model() -> dict[str, Any]:
        served = service.follower.current
        columns = {"inputs": dict(served.io.inputs), "outputs": dict(served.io.outputs)}
        return {**served.described, **columns, "example": {"inputs": [dict(row) for row in served.io.examples]}}

    @app.get("/livez")
    async def livez() -> Response:
        return JSONResponse({"alive": service.batcher.alive}, status_code=200 if service.batcher.alive else 503)

    @app.get("/readyz")
    async def readyz() -> Response:
        content = {"ready": service.ready, "model": service.follower.current.described}
        return JSONResponse(content, status_code=200 if service.ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        service.metrics.waiting.set(service.batcher.waiting_rows)
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    return app


def _refusal(error: Exception, limits: Limits) -> JSONResponse:
    match error:
        case BodyError():
            return _error(error.status, str(error))
        case DataError():
            return _error(413 if isinstance(error, TooManyRowsError) else 400, str(error))
        case OverloadedError():
            return _error(503, "too many rows wait; try again", {"Retry-After": "1"})
        case TimeoutError():
            return _error(504, f"no answer within {limits.timeout_seconds:g} s")
    # A defect: its name, but no traceback and no path.
    return _error(500, f"the prediction failed ({type(error).__name__})")


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status, headers=headers)
