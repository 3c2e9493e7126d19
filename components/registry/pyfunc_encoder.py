"""MLflow model of an encoder (models from code: MLflow runs this file, nothing is unpickled).

Do not import this module: its last line registers the model with MLflow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas

from components.models.encoder import load_encoder
from components.registry.embedding import embed
from components.tracking import PythonModel, set_model


class ServedEncoder(PythonModel):
    """DataFrame with the column `text` (N) -> DataFrame (N) with `embedding`, a list of D numbers or null (no text)."""

    def load_context(self, context: Any) -> None:
        """Load the bundle and verify it against its manifest.

        Raises:
            ArtifactError: a file of the bundle was altered.
        """
        self.encoder = load_encoder(Path(context.artifacts["bundle"]), verify=True)

    def predict(self, context: Any, model_input: pandas.DataFrame, params: dict[str, Any] | None = None) -> Any:
        """One embedding per text."""
        return pandas.DataFrame({"embedding": embed(self.encoder, list(model_input["text"]))}, dtype=object)


set_model(ServedEncoder())
