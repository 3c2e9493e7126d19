"""`telemetry`: what a retraining shows while it runs. No key changes a result."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import Field

from components.settings.section import Section


class TelemetrySettings(Section):
    """Live runs in MLflow, and gauges for Prometheus."""

    #: Whether every retraining has a run in MLflow from its first stage on, with a nested run per stage.
    mlflow: bool = True
    #: Folder of *.prom files for the textfile collector of node_exporter, relative to the repository; null: none.
    textfiles: str | None = ".headstart/metrics"
    #: Port on 127.0.0.1 at which Prometheus finds the gauges while a retraining runs; null: none.
    port: Annotated[int, Field(gt=0, lt=65536)] | None = None
    #: Address of a Prometheus Pushgateway, such as pushgateway:9091; null: none. The variable HEADSTART_PUSHGATEWAY
    #: takes precedence.
    pushgateway: str | None = None

    @property
    def gateway(self) -> str | None:
        """The address of the Pushgateway in use."""
        return os.environ.get("HEADSTART_PUSHGATEWAY") or self.pushgateway

    @property
    def is_on(self) -> bool:
        """Whether a retraining needs a monitor."""
        return self.mlflow or self.textfiles is not None or self.port is not None or self.gateway is not None
