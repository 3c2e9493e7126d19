"""Gauges of a retraining for Prometheus: a file for the textfile collector of node_exporter, a Pushgateway.

Between two retrainings no process runs, so the time of the last success is read back from the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, push_to_gateway, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from components.core.measurements import Point
from components.settings.telemetry import TelemetrySettings

JOB = "headstart"
STATUSES = ("FINISHED", "FAILED", "KILLED")
#: Seconds for a request to the Pushgateway.
PUSH_S = 3.0
#: Name without the prefix `headstart_` -> help, and labels besides `params`.
GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "retrain_running": ("1 while a retraining runs.", ()),
    "retrain_last_start_timestamp_seconds": ("Start of the last retraining.", ()),
    "retrain_last_end_timestamp_seconds": ("End of the last retraining.", ()),
    "retrain_last_success_timestamp_seconds": ("End of the last retraining without an error.", ()),
    "retrain_last_duration_seconds": ("Duration of the last retraining.", ()),
    "retrain_last_status": ("1 for the status of the last retraining.", ("status",)),
    "stage_running": ("1 while a stage runs.", ("stage",)),
    "stage_duration_seconds": ("Duration of a stage.", ("stage",)),
    "training": (
        "Last value of a measurement: loss, rate, tokens_per_second, gradient_norm, dev score.",
        ("stage", "quantity", "piece"),
    ),
    "training_step": ("Last step of a training.", ("stage", "piece")),
    "telemetry_timestamp_seconds": ("Time of the last update of these gauges.", ()),
}
#: Gauges that keep the value of the last retraining until they are set.
KEPT = {f"headstart_{name}": name for name in GAUGES if name.startswith("retrain_last_") and "_start_" not in name}


class Gauges:
    """The gauges of one settings file."""

    def __init__(self, root: Path, params: str, settings: TelemetrySettings) -> None:
        self.registry = CollectorRegistry()
        self._params, self._settings = params, settings
        self.file: Path | None = None
        if settings.textfiles is not None:
            self.file = root / settings.textfiles / f"{params.removesuffix('.yaml').replace('/', '-')}.prom"
        self._gauges = {
            name: Gauge(f"headstart_{name}", text, ["params", *labels], registry=self.registry)
            for name, (text, labels) in GAUGES.items()
        }
        self._restore()

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge of `GAUGES`."""
        self._gauges[name].labels(self._params, *labels).set(value)

    def begin(self, time: float) -> None:
        """A retraining has started, at a time in seconds since the epoch."""
        self.set("retrain_running", 1)
        self.set("retrain_last_start_timestamp_seconds", time)

    def measure(self, stage: str, points: Iterable[Point]) -> None:
        """Measurements of a stage."""
        for point in points:
            quantity, _, piece = point.key.partition("/")
            self.set("training", point.value, stage, quantity, piece)
            self.set("training_step", point.step, stage, piece)

    def end(self, status: str, *, begun: float, time: float) -> None:
        """The retraining has ended."""
        self.set("retrain_running", 0)
        self.set("retrain_last_start_timestamp_seconds", begun)
        self.set("retrain_last_end_timestamp_seconds", time)
        self.set("retrain_last_duration_seconds", time - begun)
        for each in STATUSES:
            self.set("retrain_last_status", each == status, each)
        if status == "FINISHED":
            self.set("retrain_last_success_timestamp_seconds", time)

    def publish(self) -> None:
        """Write the file and push. What fails is written the next time."""
        self._gauges["telemetry_timestamp_seconds"].labels(self._params).set_to_current_time()
        if self.file is not None:
            with suppress(OSError):
                self.file.parent.mkdir(parents=True, exist_ok=True)
                write_to_textfile(str(self.file), self.registry)
        if (gateway := self._settings.gateway) is not None:
            with suppress(OSError, ValueError, HTTPException):
                key = {"params": self._params}
                push_to_gateway(gateway, job=JOB, grouping_key=key, registry=self.registry, timeout=PUSH_S)

    def _restore(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            text = self.file.read_text(encoding="utf-8") if self.file is not None else ""
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name in KEPT:
                        self._gauges[KEPT[sample.name]].labels(**sample.labels).set(sample.value)
