"""The only package that imports MLflow: runs, registered models, their versions, tags and aliases.

It overrides three of MLflow's defaults: minutes of retries while a server is down, unpickling of loaded models, and
artifact paths relative to the working directory. Errors that a user can cause are raised as `RegistryError`.

Lineage: every model version has a run with metrics, curves, parameters and dataset inputs. Tags with the prefix
`headstart.` hold the values that the registry is searched by.
"""

from __future__ import annotations

import logging
import os

# MLflow reads these variables at import. Existing values take precedence, except that unpickling stays off.
os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"
for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}.items():
    os.environ.setdefault(_name, _value)

from mlflow.entities import Metric, RunTag  # noqa: E402

from components.tracking.logged_models import ModelFiles  # noqa: E402
from components.tracking.machine import machine_monitors  # noqa: E402
from components.tracking.registry import (  # noqa: E402
    BATCH_METRICS,
    PARENT,
    RETRAIN,
    VALUE_LENGTH,
    Registry,
    connect,
    metric_key,
)
from components.tracking.versions import PREFIX, Version  # noqa: E402

__all__ = [
    "BATCH_METRICS",
    "PARENT",
    "PREFIX",
    "RETRAIN",
    "VALUE_LENGTH",
    "Metric",
    "ModelFiles",
    "Registry",
    "RunTag",
    "Version",
    "connect",
    "machine_monitors",
    "metric_key",
]

for _noisy in ("alembic", "mlflow"):
    logging.getLogger(_noisy).setLevel(logging.WARNING)
