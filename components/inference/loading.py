"""Load the directory of a classifier of any form."""

from __future__ import annotations

from pathlib import Path

from components.inference.prediction import Classifier


def load_model(directory: Path) -> Classifier:
    """The classifier in a directory: a words model, without importing torch, or a model with an encoder, on the first
    GPU if there is one.

    Raises:
        ArtifactError: the directory is incomplete or altered.
    """
    from components.words.classifier import FORM, form_of, load_words  # imports scikit-learn

    if form_of(directory) == FORM:
        return load_words(directory)
    from components.task_models.classifier import load_classifier  # imports torch
    from components.training.devices import first_device

    return load_classifier(directory).on(first_device())
