"""A challenger next to the champion: it predicts without answering, or answers a share of the traffic.

`shadow`: a share of the requests is also predicted by the challenger, after the champion has answered. `canary`: a
share of the requests is answered by the challenger. Either way the counts become tags of the challenger's version.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from components.core.errors import HeadstartError
from components.data.tasks.data import Fields
from components.learners.prediction import predict_rows
from components.registry.tracking import Registry
from components.serving.metrics import Metrics
from components.serving.models import Served

Mode = Literal["shadow", "canary"]
#: Seconds between two updates of the tags in the registry.
RECORD_SECONDS = 30.0
#: Requests that wait for the challenger; more are left out, so that it never slows the champion down.
WAITING = 64
#: Latencies that the reported median is taken over.
LATENCIES = 1000


@dataclass
class Counts:
    """What the challenger's requests have shown.

    Attributes:
        agree: rows of the shadow on which both predictions are the same.
        left_out: requests of the share that the shadow had no time for.
    """

    rows: int = 0
    agree: int = 0
    left_out: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES))


class Challenger:
    """Predicts a share of the requests with a second model."""

    def __init__(self, served: Served, *, mode: Mode, share: float, registry: Registry, metrics: Metrics) -> None:
        self.served, self.mode, self.share = served, mode, share
        self.counts = Counts()
        self._registry, self._metrics = registry, metrics
        self._lock = threading.Lock()
        self._turn = 0.0
        self._waiting: deque[tuple[Sequence[Fields], Sequence[Any]]] = deque()
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="challenger", daemon=True)
        self._thread.start()

    def takes(self) -> bool:
        """Whether the next request belongs to the share: evenly spaced, so that any share is exact."""
        with self._lock:
            self._turn += self.share
            taken = self._turn >= 1
            self._turn -= taken
            return taken

    def shadow(self, rows: Sequence[Fields], predictions: Sequence[Any]) -> None:
        """Predict rows later and compare with the champion's predictions."""
        if len(self._waiting) >= WAITING:
            self.counts.left_out += 1
            return
        self._waiting.append((rows, predictions))
        self._wake.set()

    def answered(self, rows: int, seconds: float) -> None:
        """Count rows that the challenger has answered as a canary."""
        self.counts.rows += rows
        self.counts.seconds.append(seconds / max(1, rows))

    def stop(self) -> None:
        """End the thread and record the counts."""
        self._stopped = True
        self._wake.set()
        self._thread.join(5)
        self.record()

    def record(self) -> None:
        """Write the counts as tags of the version. A registry that cannot be reached is tried again next time."""
        counts = self.counts
        tags = {f"{self.mode}.share": f"{self.share:g}", f"{self.mode}.rows": str(counts.rows)}
        if counts.seconds:
            middle = sorted(counts.seconds)[len(counts.seconds) // 2]
            tags[f"{self.mode}.milliseconds_per_row"] = f"{1000 * middle:.2f}"
        if self.mode == "shadow" and counts.rows:
            tags["shadow.agreement"] = f"{counts.agree / counts.rows:.4f}"
            tags["shadow.requests_left_out"] = str(counts.left_out)
        for key, value in tags.items():
            try:
                self._registry.set_tag(self.served.version, key, value)
            except HeadstartError:
                return

    def _run(self) -> None:
        recorded = time.monotonic()
        while not self._stopped:
            self._wake.wait(1)
            self._wake.clear()
            while self._waiting and not self._stopped:
                self._compare(*self._waiting.popleft())
            if time.monotonic() - recorded > RECORD_SECONDS:
                self.record()
                recorded = time.monotonic()

    def _compare(self, rows: Sequence[Fields], predictions: Sequence[Any]) -> None:
        started = time.perf_counter()
        try:
            answers = predict_rows(self.served.classifier, rows)
        except Exception:  # a defect of the challenger must not end the thread; its rows count as different
            answers = [None] * len(rows)
        self.counts.seconds.append((time.perf_counter() - started) / len(rows))
        for answer, prediction in zip(answers, predictions, strict=True):
            agrees = answer is not None and answer["prediction"] == prediction
            self.counts.rows += 1
            self.counts.agree += agrees
            self._metrics.shadow.labels(str(agrees).lower()).inc()
