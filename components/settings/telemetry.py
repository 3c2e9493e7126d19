"""`telemetry`: what a retraining shows while it runs. No key changes a result."""

from __future__ import annotations

import os

from components.settings.section import Section


class TelemetrySettings(Section):
    """Live runs in MLflow, and gauges for Prometheus."""

    #: Whether every retraining has a run in MLflow from its first stage on, with a nested run per stage.
    mlflow: bool = True
    #: Folder of *.prom files for the textfile collector of node_exporter, relative to the repository; null: none.
    textfiles: str | None = ".headstart/metrics"

    @property
    def gateway(self) -> str | None:
        """The address of a Prometheus Pushgateway, such as pushgateway:9091."""
        return os.environ.get("HEADSTART_PUSHGATEWAY") or None

    @property
    def is_on(self) -> bool:
        """Whether a retraining needs a monitor."""
        return self.mlflow or self.textfiles is not None or self.gateway is not None
