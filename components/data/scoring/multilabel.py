"""Metrics of rows with any number of labels.

Targets are the indices of a row's labels (possibly none), answers (L,) independent probabilities; labels with a
probability of at least one half are predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.data.scoring.base import NO_LABEL, Fields, Floats, Inputs, Judged, Labelled, Vector, Vectors, f1, macro

#: Minimum probability of a predicted label.
THRESHOLD = 0.5


@dataclass(frozen=True)
class Multilabel(Labelled):
    """K = 3 L + 2 sums: true positives, predictions and targets of each label; rows with exactly the right labels,
    rows.
    """

    labels: Sequence[str]

    names = ("micro_f1", "macro_f1", "subset_accuracy")
    constant_name, score_name, shares = "most frequent labels", "highest probability", "independent"

    @property
    def width(self) -> int:
        return 3 * len(self.labels) + 2

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        truths = self._truths(targets)
        guesses = np.asarray(answers).reshape(truths.shape) >= THRESHOLD
        same = (truths == guesses).all(1)[:, None]
        return sparse.csr_array(
            np.concatenate([truths & guesses, guesses, truths, same, np.ones_like(same)], axis=1).astype(np.float64)
        )

    def scores(self, sums: Floats) -> dict[str, Floats]:
        """Micro F1 pools all labels; macro F1 is the mean over the labels that occur in the targets; subset accuracy is
        the share of rows with exactly the right labels."""
        hits, guesses, truths = self.counts(sums)
        return {
            "micro_f1": f1(hits.sum(-1), guesses.sum(-1), truths.sum(-1)),
            "macro_f1": macro(f1(hits, guesses, truths), truths),
            "subset_accuracy": sums[..., -2] / sums[..., -1],
        }

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        """The relative frequencies of the labels; the most frequent one is raised to the threshold if necessary."""
        shares = self._truths(targets).mean(0).astype(np.float32)
        shares[shares.argmax()] = max(shares.max(), THRESHOLD)
        return [shares] * len(targets)

    def in_words(self, fields: Fields, target: Vector) -> str:
        return ", ".join(self.labels[int(index)] for index in target) or NO_LABEL

    def judged(self, fields: Fields, target: Vector, answer: Vector) -> Judged:
        has, chosen = np.isin(np.arange(len(self.labels)), target), answer >= THRESHOLD
        if not (wrong := has != chosen).any():
            return None
        return self.compared(fields, np.flatnonzero(has), np.flatnonzero(chosen), np.abs(answer - has)[wrong].max())

    def _truths(self, targets: Vectors) -> NDArray[np.bool_]:
        """(N, L): whether a row has a label."""
        truths = np.zeros((len(targets), len(self.labels)), dtype=bool)
        for row, target in enumerate(targets):
            truths[row, target.astype(np.int64)] = True
        return truths
