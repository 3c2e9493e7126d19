"""The MLflow model of a classifier; the scripts `pyfunc_classifier` and `pyfunc_words` load one of each form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas

from components.inference.prediction import Classifier, predict_rows
from components.tasks.kinds import find_kind
from components.tracking import PythonModel


class ServedClassifier(PythonModel):
    """DataFrame (N) with the task's input columns (`text`; `first` and `second`; `words` ...) -> DataFrame (N) with its
    output columns (`components.tasks.task_io`): for classification `label`, `confidence` and `probabilities`, a map
    label -> probability. The outputs of a row with missing input are null.

    Args:
        load: loads the directory of a classifier.
    """

    def __init__(self, load: Callable[[Path], Classifier]) -> None:
        self._load = load

    def load_context(self, context: Any) -> None:
        """Load the bundle and verify it against its manifest.

        Raises:
            ArtifactError: a file of the bundle was altered.
        """
        self.classifier = self._load(Path(context.artifacts["bundle"]))

    def predict(self, context: Any, model_input: pandas.DataFrame, params: dict[str, Any] | None = None) -> Any:
        """Predict the rows.

        Raises:
            ValueError: a value has the wrong type for the task.
        """
        form = find_kind(self.classifier.kind).io
        columns = [*form.inputs, *(name for name in form.context if name in model_input.columns)]
        # A value that may be missing and is so is NaN.
        missing = dict.fromkeys(form.context, (float, type(None)))
        rows = [
            form.parse({name: value for name, value in row.items() if not isinstance(value, missing.get(name, ()))})
            for row in model_input[columns].to_dict("records")
        ]
        answers = predict_rows(self.classifier, rows)
        # dtype object keeps None, which JSON can represent, apart from NaN.
        return pandas.DataFrame(
            {name: [answer[name] if answer is not None else None for answer in answers] for name in form.outputs},
            dtype=object,
        )
