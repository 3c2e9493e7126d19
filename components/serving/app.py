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

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from json import detect_encoding
from typing import Any, Final

import orjson

from components.core.errors import DataError
from components.data.formats.lines import loads
from components.data.tasks.data import Fields
from components.data.tasks.task_io import TaskIO
from components.learners.prediction import not_read
from components.serving.batching import Answers, Batcher, OverloadedError
from components.serving.challenger import Challenger
from components.serving.http import Bodies, BodyError, Guard, Receive
from components.serving.metrics import Metrics
from components.serving.models import ChampionFollower, FixedModel, Served

#: Keys of a body that may hold its rows.
KEYS: Final = ("inputs", "instances", "dataframe_records", "dataframe_split")


class TooManyRowsError(DataError):
    """A request has more rows than one request may have."""


@dataclass(frozen=True)
class _Refused:
    """A row that is refused before it is read."""

    reason: str


@dataclass(frozen=True)
class Rows:
    """The rows of a request, in their order. `fields`: N times the input's parts; None where the row is refused.
    `problems`: N times the reason of the refusal; empty for a valid row."""

    fields: Sequence[Fields | None]
    problems: Sequence[str]

    @property
    def valid(self) -> list[Fields]:
        """The inputs that are predicted."""
        return [fields for fields in self.fields if fields is not None]


def read_rows(body: bytes, io: TaskIO, *, characters: int, most: int) -> Rows:
    """The rows of a body in JSON, by the same rules in each form. A body is the value of one of the keys `inputs`,
    `instances`, `dataframe_records` and `dataframe_split`, or such a value by itself. A value is a list of rows, an
    object of columns {column: [value, ...]}, an object of values {column: value}, which is one row, or a table
    {"columns": [...], "data": [[value, ...], ...]}. A row is an object {column: value}, or the value itself if the task
    has one input. Columns that the task does not have are ignored. Raises DataError: the body is not JSON, or not in
    one of these forms. Nothing is raised for a bad row. Raises TooManyRowsError: it has more rows."""
    try:
        # As of a line of a file: of NaN only its row is refused, and half of a surrogate pair is replaced.
        content, _ = loads(body.decode(detect_encoding(body)))
    except ValueError as error:
        raise DataError(f"the body is not JSON: {error}") from error
    keys = [key for key in KEYS if key in content] if isinstance(content, dict) else []
    if len(keys) > 1:
        raise DataError(f"the body has several of the keys {', '.join(KEYS)}: {', '.join(keys)}; send one")
    where = keys[0] if keys else "the body"
    rows = _rows(content[where] if keys else content, where, most)
    if not rows:
        raise DataError(f"{where}: no rows; send at least one")
    read = [_read(row, io, characters) for row in rows]
    return Rows([fields for fields, _ in read], [problem for _, problem in read])


def _rows(value: Any, where: str, most: int) -> list[Any]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | dict):
        raise DataError(f"{where}: {_type(value)}, expected a list of rows or an object of columns")
    if isinstance(value, list):
        _check_number(len(value), where, most)
        return value
    if "columns" in value and "data" in value:
        return _of_table(value["columns"], value["data"], where, most)
    columns = {name: column if isinstance(column, list) else [column] for name, column in value.items()}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"{where}: the columns have different numbers of values; give each one value per row")
    _check_number(max(lengths, default=0), where, most)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _of_table(columns: Any, data: Any, where: str, most: int) -> list[Any]:
    if not isinstance(columns, list) or not isinstance(data, list):
        raise DataError(f"{where}: columns and data have to be lists")
    if wrong := [name for name in columns if not isinstance(name, str)]:
        raise DataError(f"{where}: a name of a column is {_type(wrong[0])}, expected text")
    if len(set(columns)) < len(columns):
        raise DataError(f"{where}: two columns have the same name; give each its own")
    _check_number(len(data), where, most)
    return [
        dict(zip(columns, row, strict=True))
        if isinstance(row, list) and len(row) == len(columns)
        else _Refused(f"the row is {_type(row)}, expected a list of {len(columns)} values")
        for row in data
    ]


def _check_number(rows: int, where: str, most: int) -> None:
    if rows > most:
        raise TooManyRowsError(f"{where}: {rows:,} rows, more than {most:,}; send fewer at once")


def _read(row: Any, io: TaskIO, characters: int) -> tuple[Fields | None, str]:
    if isinstance(row, _Refused):
        return None, row.reason
    if not isinstance(row, dict) and len(io.inputs) == 1 and isinstance(row, str | list):
        row = dict.fromkeys(io.inputs, row)
    if not isinstance(row, dict):
        return None, f"the row is {_type(row)}, expected an object with {', '.join(io.inputs)}"
    if missing := [name for name in io.inputs if row.get(name) is None]:
        others = ", ".join(repr(name[:50]) for name in [name for name in row if name not in io.inputs][:5])
        return None, f"{missing[0]!r} is missing or null" + (f"; the row has {others}" if others else "")
    for name in io.inputs:
        if isinstance(row[name], float) and math.isnan(row[name]):
            return None, f"{name!r} is NaN, expected text"
    try:
        fields = io.parse({name: row[name] for name in io.inputs})
    except ValueError as error:
        return None, str(error)
    if fields is None:
        return None, f"a part of the input is empty ({', '.join(io.inputs)})"
    if (length := sum(map(len, fields))) > characters:
        return None, f"{length} characters, more than the limit of {characters}"
    if reason := not_read(fields):
        return None, reason
    return fields, ""


def _type(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


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
        content = {"predictions": predictions, "model": served.version.identity}
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
        return Reply(200, orjson.dumps({**served.version.identity, **columns, "example": example}))

    def _livez(self) -> Reply:
        alive = self._service.batcher.alive
        return Reply(200 if alive else 503, orjson.dumps({"alive": alive}))

    def _readyz(self) -> Reply:
        ready = self._service.ready
        content = {"ready": ready, "model": self._service.follower.current.version.identity}
        return Reply(200 if ready else 503, orjson.dumps(content))

    def _metrics(self) -> Reply:
        return Reply(200, self._service.metrics.text(), b"text/plain; version=0.0.4; charset=utf-8")


def _error(status: int, message: str, header: tuple[bytes, bytes] | None = None) -> Reply:
    return Reply(status, orjson.dumps({"error": message}), header=header)
