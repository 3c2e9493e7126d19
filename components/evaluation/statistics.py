"""Scores of a classifier as functions of sums over rows.

Every score here is a function of a few sums over the test rows (how often a class was right, guessed, true; what each
calibration bin holds). So the rows of a test set are reduced once to a sparse matrix (N, K); a bootstrap draw is a
vector of N weights, all draws are one matrix product, and every score of every draw comes from the same few lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]

#: Names of the scores; `ece` is better when lower.
SCORES = ("macro_f1", "accuracy", "micro_f1", "mcc", "ece")
#: What they can be at all.
RANGES = {name: (-1.0 if name == "mcc" else 0.0, 1.0) for name in SCORES}
#: Numbers of `resampled` that are in memory at once.
CHUNK = 20_000_000


@dataclass(frozen=True)
class Layout:
    """The K = 3 C + 3 B columns: true positives, guesses and truths of each class; rows, summed confidence and hits of
    each calibration bin."""

    classes: int
    bins: int

    @property
    def width(self) -> int:
        """K."""
        return 3 * (self.classes + self.bins)

    def parts(self, sums: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
        """(..., K) -> the six blocks, (..., C) three times and (..., B) three times."""
        c, b = self.classes, self.bins
        edges = np.cumsum([c, c, c, b, b])
        first, second, third, fourth, fifth, sixth = np.split(sums, edges, axis=-1)
        return first, second, third, fourth, fifth, sixth


def row_statistics(
    labels: NDArray[np.int64], probabilities: NDArray[np.float32], *, layout: Layout
) -> sparse.csr_array:
    """(N,) labels and (N, C) probabilities -> (N, K).

    The guess is the most probable class, the confidence its probability; bins are of equal width, each with its upper
    edge (Guo et al. 2017, section 2).
    """
    guesses = probabilities.argmax(1)
    confidence = probabilities.max(1).astype(np.float64)
    correct = (guesses == labels).astype(np.float64)
    bins = np.clip(np.ceil(confidence * layout.bins).astype(np.int64) - 1, 0, layout.bins - 1)
    c, b, one = layout.classes, layout.bins, np.ones(len(labels))
    columns = [labels, c + guesses, 2 * c + labels, 3 * c + bins, 3 * c + b + bins, 3 * c + 2 * b + bins]
    values = [correct, one, one, one, confidence, correct]
    rows = np.tile(np.arange(len(labels)), len(columns))
    return sparse.csr_array(
        (np.concatenate(values), (rows, np.concatenate(columns))), shape=(len(labels), layout.width)
    )


def scores(sums: Floats, *, layout: Layout) -> dict[str, Floats]:
    """Every score of sums (..., K), each (...).

    Macro F1 is the mean over the classes that occur among the true labels. MCC is Gorodkin's R_K (2004) for C classes.
    ECE is sum_b n_b / n |accuracy_b - confidence_b| (Guo et al. 2017, equation 3).
    """
    hits, guesses, truths, _, confidence, correct = layout.parts(sums)
    n = truths.sum(-1)
    right = hits.sum(-1)
    occurs = truths > 0
    f1 = 2 * hits / np.maximum(guesses + truths, 1)
    accuracy = right / n
    covariance = right * n - (guesses * truths).sum(-1)
    spread = np.sqrt((n**2 - (guesses**2).sum(-1)) * (n**2 - (truths**2).sum(-1)))
    return {
        "macro_f1": np.where(occurs, f1, 0).sum(-1) / occurs.sum(-1),
        "accuracy": accuracy,
        # With one label a text, micro-averaged precision, recall and F1 are all the accuracy.
        "micro_f1": accuracy,
        "mcc": np.divide(covariance, spread, out=np.zeros_like(spread), where=spread > 0),
        "ece": np.abs(correct - confidence).sum(-1) / n,
    }


def per_class(sums: Floats, *, layout: Layout) -> dict[str, Floats]:
    """Precision, recall, F1 and number of true rows of every class: sums (..., K) -> each (..., C)."""
    hits, guesses, truths, *_ = layout.parts(sums)
    return {
        "precision": hits / np.maximum(guesses, 1),
        "recall": hits / np.maximum(truths, 1),
        "f1": 2 * hits / np.maximum(guesses + truths, 1),
        "rows": truths,
    }


def calibration(sums: Floats, *, layout: Layout) -> list[dict[str, float]]:
    """Rows, mean confidence and accuracy of every bin that holds rows, from sums (K,)."""
    *_, rows, confidence, correct = layout.parts(sums)
    return [
        {
            "low": index / layout.bins,
            "high": (index + 1) / layout.bins,
            "rows": int(count),
            "confidence": float(confidence[index] / count),
            "accuracy": float(correct[index] / count),
        }
        for index, count in enumerate(rows)
        if count
    ]


def confusion(labels: NDArray[np.int64], guesses: NDArray[np.int64], *, classes: int) -> NDArray[np.int64]:
    """(C, C) counts: rows are the true labels, columns the guesses."""
    return np.bincount(labels * classes + guesses, minlength=classes**2).reshape(classes, classes)


def resampled(statistics: Sequence[sparse.csr_array], *, resamples: int, seed: int = 0) -> list[Floats]:
    """Bootstrap draws of rows: for each matrix (N, K) the sums (R, K) of R draws of N rows with replacement.

    All matrices get the same draws, so that differences between systems are paired.
    """
    rows = statistics[0].shape[0]
    rng = np.random.default_rng(seed)
    sums: list[list[Floats]] = [[] for _ in statistics]
    step = max(1, CHUNK // rows)
    for start in range(0, resamples, step):
        weights = rng.multinomial(rows, np.full(rows, 1 / rows), size=min(step, resamples - start)).astype(np.float64)
        for found, matrix in zip(sums, statistics, strict=True):
            found.append((matrix.T @ weights.T).T)
    return [np.concatenate(found) for found in sums]
