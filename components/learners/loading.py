"""Load the directory of a classifier of any form."""

import sys
from pathlib import Path

from components.learners.abstention import abstaining, threshold_of
from components.learners.prediction import Classifier


def load_model(directory: Path, *, int8: bool = False, what: str = "", error: float | None = None) -> Classifier:
    """The classifier in a directory: a words model, without importing torch, or a model with an encoder.

    Args:
        int8: quantise the matrices of a Transformer, which is then computed on the processor. Others stay as they are.
        what: name of the model for messages; empty: the directory.
        error: allowed share of wrong answers, with columns of `abstention`; None: no such columns.

    Raises:
        ArtifactError: the directory is incomplete or altered.
        ConfigError: the model has no thresholds for `error`.
    """
    classifier = _loaded(directory, int8=int8, what=what or str(directory))
    if error is None:
        return classifier
    return abstaining(classifier, directory, threshold_of(directory, error, what=what or str(directory)))


def _loaded(directory: Path, *, int8: bool, what: str) -> Classifier:
    from components.learners.words.classifier import FORM, form_of, load_words  # imports scikit-learn

    if form_of(directory) == FORM:
        if int8:
            _say_not_quantised(what, "is a words model")
        return load_words(directory)
    from components.learners.task_models.classifier import load_classifier  # imports torch
    from components.learners.task_models.inference_weights import why_not_quantised
    from components.training.precision import first_device

    classifier = load_classifier(directory)
    if int8:
        if not (reason := why_not_quantised(classifier.encoder)):
            return classifier.quantised()
        _say_not_quantised(what, reason)
    return classifier.on(first_device())


def _say_not_quantised(what: str, reason: str) -> None:
    print(f"{what}: {reason}; --int8 has no effect on it", file=sys.stderr, flush=True)
