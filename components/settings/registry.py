"""`registry`: MLflow tracking and model registry."""

from __future__ import annotations

import os

from components.settings.names import FileName
from components.settings.section import Section


class RegistrySettings(Section):
    """MLflow tracking and model registry."""

    #: Tracking URI. The variable MLFLOW_TRACKING_URI takes precedence.
    tracking: str = "sqlite:///mlflow.db"
    #: Artifact location; null: next to a local database, or the default of the server.
    artifacts: str | None = None
    #: Name of the MLflow experiment.
    experiment: str = "headstart"
    #: Prefix of the registered models' names.
    prefix: FileName = "headstart"

    @property
    def address(self) -> str:
        """The tracking URI in use."""
        return os.environ.get("MLFLOW_TRACKING_URI") or self.tracking
