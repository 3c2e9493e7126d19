"""Micro-batching: rows that wait at the same time are predicted together.

One thread predicts. While it computes a batch, further requests wait; the next batch takes as many of their rows as
fit. So a single request never waits for others to arrive, and batches grow with the load. A request with more rows than
a batch is predicted in several batches, and the requests behind it are predicted in between.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from components.data.tasks.data import Fields
from components.learners.prediction import predict_rows
from components.serving.models import Served

Answers = list[dict[str, Any] | None]


class OverloadedError(Exception):
    """Too many rows wait."""


@dataclass
class Request:
    """The valid rows of one request.

    Attributes:
        choose: picks the model when the first rows are taken from the queue.
        deadline: time.monotonic() at which nobody waits for the answers any more.
        answers: the model that was used, and one answer per row.
    """

    rows: Sequence[Fields]
    choose: Callable[[], Served]
    deadline: float
    answers: Future[tuple[Served, Answers]] = field(default_factory=Future)
    served: Served | None = None
    taken: int = 0
    done: Answers = field(default_factory=list)

    @property
    def expected(self) -> bool:
        """Whether somebody waits for the answers."""
        return self.deadline > time.monotonic() and not self.answers.done()


#: A request and some of its rows.
Part = tuple[Request, Sequence[Fields]]


class Batcher:
    """Predicts requests in a thread of its own."""

    def __init__(
        self, *, batch_rows: int, queue_rows: int, on_batch: Callable[[int, float], None] = lambda rows, seconds: None
    ) -> None:
        self._batch_rows, self._queue_rows, self._on_batch = batch_rows, queue_rows, on_batch
        self._waiting: deque[Request] = deque()
        self._rows = 0
        self._condition = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="predict", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def waiting_rows(self) -> int:
        """Number of rows that wait."""
        return self._rows

    def submit(self, request: Request) -> Future[tuple[Served, Answers]]:
        """Queue a request.

        Raises:
            OverloadedError: too many rows would wait.
        """
        with self._condition:
            if self._rows + len(request.rows) > self._queue_rows:
                raise OverloadedError
            self._waiting.append(request)
            self._rows += len(request.rows)
            self._condition.notify()
        return request.answers

    def stop(self, *, seconds: float) -> None:
        """Predict what waits, then end the thread; waits for it at most so many seconds."""
        with self._condition:
            self._stopped = True
            self._condition.notify()
        self._thread.join(seconds)

    def _take(self) -> list[Part]:
        """The rows of the next batch; empty at the end."""
        with self._condition:
            while not self._waiting and not self._stopped:
                self._condition.wait()
            parts: list[Part] = []
            room, rest = self._batch_rows, deque[Request]()
            while self._waiting and room:
                request = self._waiting.popleft()
                if not request.expected:
                    self._rows -= len(request.rows) - request.taken
                    continue
                rows = request.rows[request.taken : request.taken + room]
                request.taken += len(rows)
                self._rows -= len(rows)
                room -= len(rows)
                parts.append((request, rows))
                if request.taken < len(request.rows):
                    rest.append(request)
            # Behind the others, which have rows in the next batch.
            self._waiting += rest
            return parts

    def _run(self) -> None:
        while True:
            parts = self._take()
            if not parts:
                if self._stopped and not self._waiting:
                    return
                continue
            groups: dict[int, tuple[Served, list[Part]]] = {}
            for request, rows in parts:
                request.served = request.served or request.choose()
                groups.setdefault(id(request.served), (request.served, []))[1].append((request, rows))
            for served, group in groups.values():
                self._predict(served, group)

    def _predict(self, served: Served, parts: Sequence[Part]) -> None:
        rows = [fields for _, part in parts for fields in part]
        started = time.perf_counter()
        try:
            answers = predict_rows(served.classifier, rows)
        except Exception as error:  # a defect of one batch must not end the server
            for request, _ in parts:
                if not request.answers.done():
                    request.answers.set_exception(error)
            return
        self._on_batch(len(rows), time.perf_counter() - started)
        start = 0
        for request, part in parts:
            request.done += answers[start : start + len(part)]
            start += len(part)
            if len(request.done) == len(request.rows) and request.answers.set_running_or_notify_cancel():
                request.answers.set_result((served, request.done))
