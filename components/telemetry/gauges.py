"""Gauges of a retraining for Prometheus: a file for the textfile collector of node_exporter, a port on 127.0.0.1, a
Pushgateway.

Between two retrainings no process runs, so the time of the last success is read back from the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, push_to_gateway, start_http_server, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from components.settings.telemetry import TelemetrySettings
from components.telemetry.curves import Point

HOST = "127.0.0.1"
JOB = "headstart"
STATUSES = ("FINISHED", "FAILED", "KILLED")
#: Seconds for a request to the Pushgateway.
PUSH_S = 3.0


class Gauges:
    """The gauges of one settings file.

    Args:
        root: of the repository.
        params: the settings file, as a label.
        settings: `params.telemetry`.
    """

    def __init__(self, root: Path, params: str, settings: TelemetrySettings) -> None:
        own = self.registry = CollectorRegistry()
        self._params, self._settings = params, settings
        self.file: Path | None = None
        if settings.textfiles is not None:
            self.file = root / settings.textfiles / f"{params.removesuffix('.yaml').replace('/', '-')}.prom"
        one = ["params"]
        self._running = Gauge("headstart_retrain_running", "1 while a retraining runs.", one, registry=own)
        self._begun = Gauge(
            "headstart_retrain_last_start_timestamp_seconds", "Start of the last retraining.", one, registry=own
        )
        self._ended = Gauge(
            "headstart_retrain_last_end_timestamp_seconds", "End of the last retraining.", one, registry=own
        )
        self._success = Gauge(
            "headstart_retrain_last_success_timestamp_seconds",
            "End of the last retraining without an error.",
            one,
            registry=own,
        )
        self._seconds = Gauge(
            "headstart_retrain_last_duration_seconds", "Duration of the last retraining.", one, registry=own
        )
        self._status = Gauge(
            "headstart_retrain_last_status", "1 for the status of the last retraining.", [*one, "status"], registry=own
        )
        self._stage = Gauge("headstart_stage_running", "1 while a stage runs.", [*one, "stage"], registry=own)
        self._stage_seconds = Gauge(
            "headstart_stage_duration_seconds", "Duration of a stage.", [*one, "stage"], registry=own
        )
        self._training = Gauge(
            "headstart_training",
            "Last value of a measurement: loss, rate, tokens_per_second, gradient_norm, dev score.",
            [*one, "stage", "quantity", "piece"],
            registry=own,
        )
        self._step = Gauge(
            "headstart_training_step", "Last step of a training.", [*one, "stage", "piece"], registry=own
        )
        self._updated = Gauge(
            "headstart_telemetry_timestamp_seconds", "Time of the last update of these gauges.", one, registry=own
        )
        self._restore()

    def listen(self) -> None:
        """Serve the gauges at `telemetry.port`. A port in use leaves the other ways."""
        if self._settings.port is not None:
            with suppress(OSError):
                start_http_server(self._settings.port, addr=HOST, registry=self.registry)

    def begin(self, time: float) -> None:
        """A retraining has started, at a time in seconds since the epoch."""
        self._running.labels(self._params).set(1)
        self._begun.labels(self._params).set(time)

    def begin_stage(self, stage: str) -> None:
        """A stage has started."""
        self._stage.labels(self._params, stage).set(1)

    def end_stage(self, stage: str, seconds: float) -> None:
        """A stage has ended."""
        self._stage.labels(self._params, stage).set(0)
        self._stage_seconds.labels(self._params, stage).set(seconds)

    def measure(self, stage: str, points: Iterable[Point]) -> None:
        """Measurements of a stage."""
        for point in points:
            quantity, _, piece = point.key.partition("/")
            self._training.labels(self._params, stage, quantity, piece).set(point.value)
            self._step.labels(self._params, stage, piece).set(point.step)

    def end(self, status: str, *, begun: float, time: float) -> None:
        """The retraining has ended."""
        self._running.labels(self._params).set(0)
        self._begun.labels(self._params).set(begun)
        self._ended.labels(self._params).set(time)
        self._seconds.labels(self._params).set(time - begun)
        for one in STATUSES:
            self._status.labels(self._params, one).set(one == status)
        if status == "FINISHED":
            self._success.labels(self._params).set(time)

    def publish(self) -> None:
        """Write the file and push. What fails is written the next time."""
        self._updated.labels(self._params).set_to_current_time()
        if self.file is not None:
            with suppress(OSError):
                self.file.parent.mkdir(parents=True, exist_ok=True)
                write_to_textfile(str(self.file), self.registry)
        if self._settings.gateway is not None:
            with suppress(OSError):
                push_to_gateway(
                    self._settings.gateway,
                    job=JOB,
                    grouping_key={"params": self._params},
                    registry=self.registry,
                    timeout=PUSH_S,
                )

    def _restore(self) -> None:
        """The gauges of the retraining as the last one left them; those of training start anew."""
        with suppress(OSError, ValueError, AttributeError):
            text = self.file.read_text(encoding="utf-8") if self.file is not None else ""
            kept = {
                "headstart_retrain_last_success_timestamp_seconds": self._success,
                "headstart_retrain_last_end_timestamp_seconds": self._ended,
                "headstart_retrain_last_duration_seconds": self._seconds,
            }
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name in kept:
                        kept[sample.name].labels(sample.labels["params"]).set(sample.value)
                    elif sample.name == "headstart_retrain_last_status":
                        self._status.labels(sample.labels["params"], sample.labels["status"]).set(sample.value)
