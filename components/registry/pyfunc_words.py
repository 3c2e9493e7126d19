"""MLflow model of a words model, whose code and requirements are without torch (models from code: MLflow runs this
file, nothing is unpickled).

Do not import this module: its last line registers the model with MLflow.
"""

from __future__ import annotations

from components.registry.served_classifier import ServedClassifier
from components.tracking import set_model
from components.words.classifier import load_words

set_model(ServedClassifier(load_words))
