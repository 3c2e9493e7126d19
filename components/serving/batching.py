"""Micro-batching: while a batch is computed, further requests wait, and the next batch takes as many of their rows as
fit. No request waits for others to arrive; one with more rows than a batch is divided. All methods are called by the
event loop."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from queue import SimpleQueue
from typing import Any

from components.data.tasks.data import Fields
from components.learners.prediction import predict_rows
from components.serving.models import Served

Answers = list[dict[str, Any] | None]
#: Maximum number of characters of a batch that the event loop itself computes, of models that are `Served.quick`: for
#: them, passing a batch to a thread and back takes as long as the batch.
QUICK_CHARACTERS = 20_000


#: Maximum number of characters of a batch of several rows: it bounds the time that other requests wait.
BATCH_CHARACTERS = 100_000


class OverloadedError(Exception):
    """Too many rows wait."""


@dataclass
class Request:
    """The valid rows of one request.

    Attributes:
        choose: picks the model when the first rows are taken from the queue.
        answers: the model that was used, and one answer per row. Nobody waits for a request whose answers are done.
    """

    rows: Sequence[Fields]
    choose: Callable[[], Served]
    answers: asyncio.Future[tuple[Served, Answers]]
    served: Served | None = None
    taken: int = 0
    done: Answers = field(default_factory=list)


#: A request and some of its rows.
Part = tuple[Request, Sequence[Fields]]


class Batcher:
    """Predicts requests, in batches that are large or of a slow model in a thread."""

    def __init__(
        self, *, batch_rows: int, queue_rows: int, on_batch: Callable[[int, float], None] = lambda rows, seconds: None
    ) -> None:
        self._batch_rows, self._queue_rows, self._on_batch = batch_rows, queue_rows, on_batch
        self._waiting: deque[Request] = deque()
        self._busy = False
        self._batches: SimpleQueue[tuple[asyncio.AbstractEventLoop, Served, list[Part]] | None] = SimpleQueue()
        self.waiting_rows = 0
        # A daemon: a prediction that does not end keeps no process alive.
        self._thread = threading.Thread(target=self._run, name="predict", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    async def predict(
        self, rows: Sequence[Fields], choose: Callable[[], Served], *, seconds: float
    ) -> tuple[Served, Answers]:
        """The model that was used, and one answer per row.

        Raises:
            OverloadedError: too many rows would wait.
            TimeoutError: there is no answer after so many seconds.
        """
        if self.waiting_rows + len(rows) > self._queue_rows:
            raise OverloadedError
        loop = asyncio.get_running_loop()
        request = Request(rows, choose, loop.create_future())
        self._waiting.append(request)
        self.waiting_rows += len(rows)
        if not self._busy:
            self._busy = True
            # After the requests that have been received at the same time.
            loop.call_soon(self._start, loop)
        timer = loop.call_later(seconds, _expire, request.answers)
        try:
            return await request.answers
        finally:
            timer.cancel()

    def stop(self) -> None:
        """End the thread after its batch."""
        self._batches.put(None)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Compute the next batch, or pass it to the thread."""
        served, parts = self._take()
        if served is None:
            self._busy = False
        elif served.quick and sum(_characters(row) for _, rows in parts for row in rows) <= QUICK_CHARACTERS:
            self._finish(loop, parts, *_computed(served, parts))
        else:
            self._batches.put((loop, served, parts))

    def _take(self) -> tuple[Served | None, list[Part]]:
        """A model, and the rows of its next batch."""
        served: Served | None = None
        parts: list[Part] = []
        room, characters, rest = self._batch_rows, BATCH_CHARACTERS, deque[Request]()
        while self._waiting and room and characters > 0:
            request = self._waiting.popleft()
            if request.answers.done():
                self.waiting_rows -= len(request.rows) - request.taken
                continue
            request.served = request.served or request.choose()
            served = served or request.served
            if request.served is served:
                rows: list[Fields] = []
                for row in request.rows[request.taken : request.taken + room]:
                    characters -= _characters(row)
                    # A row with more characters than a batch has one of its own.
                    if characters < 0 and (rows or parts):
                        break
                    rows.append(row)
                request.taken += len(rows)
                self.waiting_rows -= len(rows)
                room -= len(rows)
                if rows:
                    parts.append((request, rows))
            if request.taken < len(request.rows):
                rest.append(request)
        # Behind the others, which have rows in the next batch.
        self._waiting += rest
        return served, parts

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            loop, served, parts = batch
            computed = _computed(served, parts)
            with suppress(RuntimeError):  # the loop has ended, so nobody waits
                loop.call_soon_threadsafe(self._finish, loop, parts, *computed)

    def _finish(
        self, loop: asyncio.AbstractEventLoop, parts: Sequence[Part], answers: Answers | Exception, seconds: float
    ) -> None:
        loop.call_soon(self._start, loop)
        if isinstance(answers, Exception):
            for request, _ in parts:
                if not request.answers.done():
                    request.answers.set_exception(answers)
            return
        self._on_batch(len(answers), seconds)
        collected = iter(answers)
        for request, rows in parts:
            request.done += islice(collected, len(rows))
            if len(request.done) == len(request.rows) and not request.answers.done():
                assert request.served is not None
                request.answers.set_result((request.served, request.done))


def _characters(row: Fields) -> int:
    return sum(map(len, row))


def _computed(served: Served, parts: Sequence[Part]) -> tuple[Answers | Exception, float]:
    """The answers to a batch, or the error; and its seconds."""
    started = time.perf_counter()
    try:
        answers: Answers | Exception = predict_rows(served.classifier, [row for _, rows in parts for row in rows])
    except Exception as error:  # a defect of one batch must not end the server
        answers = error
    return answers, time.perf_counter() - started


def _expire(answers: asyncio.Future[Any]) -> None:
    if not answers.done():
        answers.set_exception(TimeoutError())
