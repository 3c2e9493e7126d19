"""How MLflow serves a classifier (models from code: MLflow runs this file, nothing is unpickled).

Not to be imported: the last line registers the model with MLflow, as models from code must.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas

from components.finetuning.classifier import load_classifier
from components.prediction import label_texts
from components.tracking import PythonModel, set_model


class ServedClassifier(PythonModel):
    """DataFrame with the column `text` (N) -> DataFrame (N) with `label`, `confidence` and `probabilities`, an object
    of label -> probability. An empty text has none of the three."""

    def load_context(self, context: Any) -> None:
        """Load the bundle, checked against its manifest.

        Raises:
            ArtifactError: a file of the bundle was altered.
        """
        self.classifier = load_classifier(Path(context.artifacts["bundle"]))

    def predict(self, context: Any, model_input: pandas.DataFrame, params: dict[str, Any] | None = None) -> Any:
        """Label the texts."""
        answers = label_texts(self.classifier, list(model_input["text"]))
        return pandas.DataFrame(
            {
                "label": [answer.label for answer in answers],
                "confidence": [answer.confidence for answer in answers],
                "probabilities": [answer.probabilities for answer in answers],
            },
            dtype=object,  # keeps None apart from NaN, which is no JSON
        )


set_model(ServedClassifier())
