"""Scores on dev, by which weights and penalties are chosen while learning."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, f1_score


def dev_scores(labels: NDArray[np.int64], found: NDArray[np.float32]) -> dict[str, float]:
    """Macro F1 (over the classes that occur), accuracy, mean negative log-likelihood (nats) of (N, C) probabilities."""
    guessed = found.argmax(1)
    true = found[np.arange(len(labels)), labels]
    return {
        "macro_f1": float(f1_score(labels, guessed, average="macro", labels=np.unique(labels), zero_division=0)),
        "accuracy": float(accuracy_score(labels, guessed)),
        "nll": float(-np.log(np.maximum(true, 1e-12)).mean()),
    }
