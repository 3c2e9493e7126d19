"""Micro-batching: rows that wait at the same time are predicted together.

One thread predicts. While it computes a batch, further requests wait; the next batch takes as many of them as fit. So a
single request never waits for others to arrive, and batches grow with the load.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from components.inference.prediction import predict_rows
from components.serving.models import Served
from components.tasks.data import Fields

Answers = list[dict[str, Any] | None]


class OverloadedError(Exception):
    """Too many rows wait."""


@dataclass
class Request:
    """The valid rows of one request.

    Attributes:
        rows: inputs.
        choose: picks the model when the request is taken from the queue.
        deadline: time.monotonic() at which nobody waits for the answers any more.
        answers: the model that was used, and one answer per row.
    """

    rows: Sequence[Fields]
    choose: Callable[[], Served]
    deadline: float
    answers: Future[tuple[Served, Answers]] = field(default_factory=Future)


class Batcher:
    """Predicts requests in a thread of its own.

    Args:
        batch_rows: maximum number of rows of a batch. A request with more is a batch by itself.
        queue_rows: maximum number of waiting rows.
        on_batch: called with the number of rows and the seconds of each batch.
    """

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
            OverloadedError: too many rows wait already.
        """
        with self._condition:
            if self._rows and self._rows + len(request.rows) > self._queue_rows:
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

    def _take(self) -> list[Request]:
        """The requests of the next batch, all for the same model; empty at the end."""
        with self._condition:
            while not self._waiting and not self._stopped:
                self._condition.wait()
            taken: list[Request] = []
            rows = 0
            while self._waiting and (not taken or rows + len(self._waiting[0].rows) <= self._batch_rows):
                request = self._waiting.popleft()
                self._rows -= len(request.rows)
                # Nobody waits for the answers of a request that has timed out or was cancelled.
                if request.deadline > time.monotonic() and request.answers.set_running_or_notify_cancel():
                    taken.append(request)
                    rows += len(request.rows)
            return taken

    def _run(self) -> None:
        while True:
            requests = self._take()
            if not requests:
                if self._stopped and not self._waiting:
                    return
                continue
            groups: dict[int, tuple[Served, list[Request]]] = {}
            for request in requests:
                served = request.choose()
                groups.setdefault(id(served), (served, []))[1].append(request)
            for served, group in groups.values():
                self._predict(served, group)

    def _predict(self, served: Served, requests: Sequence[Request]) -> None:
        rows = [fields for request in requests for fields in request.rows]
        started = time.perf_counter()
        try:
            answers = predict_rows(served.classifier, rows)
        except Exception as error:  # a defect of one batch must not end the server
            for request in requests:
                request.answers.set_exception(error)
            return
        self._on_batch(len(rows), time.perf_counter() - started)
        start = 0
        for request in requests:
            request.answers.set_result((served, answers[start : start + len(request.rows)]))
            start += len(request.rows)
