"""The only package that imports MLflow: runs, registered models, their versions, tags and aliases.

It overrides minutes of retries while a server is down, unpickling of loaded models, and artifact paths relative to the
working directory. Errors that a user can cause are `RegistryError`. Tags with the prefix `headstart.` hold the values
that the registry is searched by.
"""

import logging

from components.core.environment import protect

protect()

from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor  # noqa: E402

from components.registry.tracking.log import Log  # noqa: E402
from components.registry.tracking.registry import (  # noqa: E402
    PARENT,
    RETRAIN,
    Record,
    Registry,
    connect,
    metric_key,
)
from components.registry.version import PREFIX, Version  # noqa: E402

__all__ = [
    "PARENT",
    "PREFIX",
    "RETRAIN",
    "Log",
    "Record",
    "Registry",
    "SystemMetricsMonitor",
    "Version",
    "connect",
    "metric_key",
]

for _noisy in ("alembic", "mlflow"):
    logging.getLogger(_noisy).setLevel(logging.WARNING)
