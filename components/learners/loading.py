"""Load the directory of a classifier of any form."""

from __future__ import annotations

import sys
from pathlib import Path

from components.learners.prediction import Classifier


def load_model(directory: Path, *, int8: bool = False, what: str = "") -> Classifier:
    """The classifier in a directory: a words model, without importing torch, or a model with an encoder, on the first
    GPU if there is one.

    Args:
        int8: quantise the matrices of a Transformer; it is computed on the processor. Other models are loaded as they
            are stored, and a message says so.
        what: name of the model for the message; empty: the directory.

    Raises:
        ArtifactError: the directory is incomplete or altered.
    """
    from components.learners.words.classifier import FORM, form_of, load_words  # imports scikit-learn

    if form_of(directory) == FORM:
        if int8:
            _say_not_quantised(what or str(directory), "is a words model")
        return load_words(directory)
    from components.learners.task_models.classifier import load_classifier  # imports torch
    from components.learners.task_models.inference_weights import why_not_quantised
    from components.training.precision import first_device

    classifier = load_classifier(directory)
    if int8:
        if not (reason := why_not_quantised(classifier.encoder)):
            return classifier.quantised()
        _say_not_quantised(what or str(directory), reason)
    return classifier.on(first_device())


def _say_not_quantised(what: str, reason: str) -> None:
    print(f"{what}: {reason}; --int8 has no effect on it", file=sys.stderr, flush=True)
