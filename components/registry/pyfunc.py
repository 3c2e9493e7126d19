"""Registered models in MLflow: `mlflow models serve` and `predict` call `_load_pyfunc`, which loads data with the
installed code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas

from components.core.artifacts import read_manifest
from components.data.tasks.kinds import find_kind
from components.learners.loading import load_model
from components.learners.prediction import Classifier, predict_rows

if TYPE_CHECKING:
    from components.models.encoder import Encoder

#: Maximum pieces of a text that is embedded.
MAX_LENGTH = 256


def _load_pyfunc(path: str) -> ServedClassifier | ServedEncoder:
    """Load a bundle and verify it against its manifest; the name is MLflow's."""
    directory = Path(path)
    if read_manifest(directory).kind == "classifier":
        return ServedClassifier(load_model(directory))
    from components.models.encoder import load_encoder  # imports torch, which words models do not need

    return ServedEncoder(load_encoder(directory, verify=True))


@dataclass
class ServedEncoder:
    """DataFrame with the column `text` (N) -> DataFrame (N) with `embedding`, a list of D numbers or null (no text)."""

    encoder: Encoder

    def predict(self, model_input: pandas.DataFrame, params: dict[str, Any] | None = None) -> pandas.DataFrame:
        """One embedding per text."""
        return pandas.DataFrame({"embedding": embed(self.encoder, list(model_input["text"]))}, dtype=object)


@dataclass
class ServedClassifier:
    """DataFrame (N) with the task's input columns (`text`; `first` and `second`; `words` ...) -> DataFrame (N) with its
    output columns (`components.data.tasks.task_io`): for classification `label`, `confidence` and `probabilities`, a
    map label -> probability. The outputs of a row with missing input are null."""

    classifier: Classifier

    def predict(self, model_input: pandas.DataFrame, params: dict[str, Any] | None = None) -> pandas.DataFrame:
        """Predict the rows."""
        form = find_kind(self.classifier.kind).io
        rows = [form.parse(row) for row in model_input[list(form.inputs)].to_dict("records")]
        answers = predict_rows(self.classifier, rows)
        # dtype object keeps None, which JSON can represent, apart from NaN.
        return pandas.DataFrame(
            {name: [answer[name] if answer is not None else None for answer in answers] for name in form.outputs},
            dtype=object,
        )


def embed(encoder: Encoder, texts: Sequence[str | None]) -> list[list[float] | None]:
    """Text embeddings as the encoder was trained (`LanguageModel.vectors_of`), of at most `MAX_LENGTH` pieces,
    or as many as the model has positions."""
    from components.learners.task_models.inputs import encode_sequences
    from components.learners.task_models.predictor import sentence_vectors

    filled = [index for index, text in enumerate(texts) if text is not None and text.strip()]
    vectors: list[list[float] | None] = [None] * len(texts)
    room = min(MAX_LENGTH, encoder.model.max_tokens or MAX_LENGTH)
    encoded = encode_sequences([[(str(texts[index]),)] for index in filled], encoder.tokenizer, encoder.model, room)
    for index, vector in zip(filled, sentence_vectors(encoder.model, encoded), strict=True):
        vectors[index] = vector.tolist()
    return vectors
