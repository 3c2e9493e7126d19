"""MLflow model of a classifier with an encoder (models from code: MLflow runs this file, nothing is unpickled).

Do not import this module: its last line registers the model with MLflow.
"""

from __future__ import annotations

from components.registry.served_classifier import ServedClassifier
from components.task_models.classifier import load_classifier
from components.tracking import set_model

set_model(ServedClassifier(load_classifier))
