"""`registry`: MLflow tracking and model registry."""

from __future__ import annotations

import os

from components.settings.section import Section


class RegistrySettings(Section):
    """MLflow: `MLFLOW_TRACKING_URI` wins over `tracking`, as everywhere."""

    tracking: str = "sqlite:///mlflow.db"
    artifacts: str | None = None
    experiment: str = "headstart"
    prefix: str = "headstart"

    @property
    def address(self) -> str:
        """The one in use."""
        return os.environ.get("MLFLOW_TRACKING_URI") or self.tracking
