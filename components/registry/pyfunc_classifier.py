"""MLflow model of a classifier (models from code: MLflow runs this file, nothing is unpickled).

Do not import this module: its last line registers the model with MLflow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas

from components.inference.prediction import predict_rows
from components.task_models.classifier import load_classifier
from components.tasks.kinds import find_kind
from components.tracking import PythonModel, set_model


class ServedClassifier(PythonModel):
    """DataFrame (N) with the task's input columns (`text`; `first` and `second`; `words` ...) -> DataFrame (N) with its
    output columns (`components.tasks.task_io`): for classification `label`, `confidence` and `probabilities`, a map
    label -> probability. The outputs of a row with missing input are null."""

    def load_context(self, context: Any) -> None:
        """Load the bundle and verify it against its manifest.

        Raises:
            ArtifactError: a file of the bundle was altered.
        """
        self.classifier = load_classifier(Path(context.artifacts["bundle"]))

    def predict(self, context: Any, model_input: pandas.DataFrame, params: dict[str, Any] | None = None) -> Any:
        """Predict the rows.

        Raises:
            ValueError: a value has the wrong type for the task.
        """
        form = find_kind(self.classifier.kind).io
        rows = [form.parse(row) for row in model_input[list(form.inputs)].to_dict("records")]
        answers = predict_rows(self.classifier, rows)
        # dtype object keeps None, which JSON can represent, apart from NaN.
        return pandas.DataFrame(
            {name: [answer[name] if answer is not None else None for answer in answers] for name in form.outputs},
            dtype=object,
        )


set_model(ServedClassifier())
