"""Prometheus metrics of the server.

With the variable PROMETHEUS_MULTIPROC_DIR, the values are in files of that folder, and each replica reports the sums
over all of them.
"""

import os
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from components.serving.models import Served

SHARED: Final = "PROMETHEUS_MULTIPROC_DIR"
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


class Metrics:
    """Counts of one server; a registry of its own, so that several servers in one process do not share them."""

    def __init__(self) -> None:
        into = self.registry = CollectorRegistry()
        self.requests = Counter("headstart_requests", "Requests by status.", ["status"], registry=into)
        self.seconds = Histogram("headstart_request_seconds", "Seconds per request.", buckets=SECONDS, registry=into)
        self._rows = Counter("headstart_rows", "Rows by outcome and version.", ["outcome", "version"], registry=into)
        self.batch_rows = Histogram("headstart_batch_rows", "Rows per batch.", buckets=ROWS, registry=into)
        self.batch_seconds = Histogram("headstart_batch_seconds", "Seconds per batch.", buckets=SECONDS, registry=into)
        self._confidence = Histogram(
            "headstart_confidence", "Confidence of answers by version.", ["version"], buckets=SHARES, registry=into
        )
        self._model = Gauge(
            "headstart_model",
            "1 for the served version.",
            ["name", "version", "digest"],
            registry=into,
            multiprocess_mode="livemax",
        )
        self.failures = Counter("headstart_follow_failures", "Failed checks of the champion's alias.", registry=into)
        self.waiting = Gauge(
            "headstart_waiting_rows", "Rows that wait for a batch.", registry=into, multiprocess_mode="livesum"
        )
        self.shadow = Counter("headstart_shadow_rows", "Rows of the shadow.", ["agrees"], registry=into)
        self._served: dict[str, str] = {}

    def observe_rows(self, version: str, answered: int, refused: int, confidences: Sequence[float]) -> None:
        """Count the rows of a request."""
        for outcome, rows in (("answered", answered), ("refused", refused)):
            if rows:
                self._rows.labels(outcome, version).inc(rows)
        for confidence in confidences:
            self._confidence.labels(version).observe(confidence)

    def serve(self, served: Served) -> None:
        """Record that another version is served."""
        if self._served:
            self._model.labels(**self._served).set(0)
        self._served = served.version.identity
        self._model.labels(**self._served).set(1)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        if SHARED not in os.environ:
            return generate_latest(self.registry)
        of_all = CollectorRegistry()
        MultiProcessCollector(of_all)
        return generate_latest(of_all)
