"""Metrics of rows with exactly one label: classification of texts and pairs, and multiple choice.

Targets are [index of the label], answers (C,) probabilities. In multiple choice, C is the number of choices of the row;
the index of a choice carries no meaning, so there are neither classes nor a confusion matrix.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.data.scoring.base import (
    NO_LABEL,
    Fields,
    Floats,
    Inputs,
    Labelled,
    Scoring,
    Vector,
    Vectors,
    f1,
    macro,
    matrix_of,
    numbers,
    ratio,
)

#: Targets of rows of test of no class, and with a label that train lacks: every answer to them is wrong.
NO_CLASS, UNSEEN = -1, -2
#: H, levels of the logit of a confidence between -8 and 24.
LEVELS = 640


@dataclass(frozen=True)
class Classification(Labelled):
    """One of C labels per row.

    K = 3 C + 3 B sums: true positives, predictions and targets of each class; rows, confidence and correct rows of each
    calibration bin. The confidence is the probability of the predicted class; bins have equal width and include their
    upper edge (Guo et al. 2017, section 2).

    Rows with the target `NO_CLASS` do not enter these sums. With `outside`, 2 H sums follow: the rows inside and
    outside of the classes by level of confidence. `outside_auroc` is the share of pairs of an inside and an outside
    row in which the inside row has the higher confidence (Hendrycks and Gimpel 2017); ties count one half.
    """

    labels: Sequence[str]
    bins: int = 15
    outside: bool = False

    constant_name, shares = "most frequent class", "exclusive"

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The primary metric is macro F1."""
        return ("macro_f1", "accuracy", "micro_f1", "mcc", "ece", *(["outside_auroc"] if self.outside else []))

    def fitting(self, targets: Vectors) -> Scoring:
        return replace(self, outside=bool((numbers(targets) == NO_CLASS).any()))

    @property
    def strata(self) -> int:  # type: ignore[override]
        """A label budget is a number of rows per class."""
        return len(self.labels)

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {name: (-1.0 if name == "mcc" else 0.0, 1.0) for name in self.names}

    @property
    def width(self) -> int:
        return 3 * (len(self.labels) + self.bins) + 2 * LEVELS * self.outside

    def in_words(self, fields: Fields, target: Vector) -> str:
        return self.labels[int(target[0])] if target[0] >= 0 else NO_LABEL

    def bins_of(self, sums: Floats) -> tuple[Floats, Floats, Floats]:
        """Rows, confidence and correct rows of each calibration bin, each (..., B)."""
        first = 3 * len(self.labels)
        rows, confidence, correct = np.split(sums[..., first : first + 3 * self.bins], 3, axis=-1)
        return rows, confidence, correct

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        labels = numbers(targets)
        probabilities = np.asarray(answers).reshape(len(labels), len(self.labels))
        guesses = probabilities.argmax(1)
        confidence = probabilities.max(1).astype(np.float64)
        correct = (guesses == labels).astype(np.float64)
        c, b, ones = len(self.labels), self.bins, np.ones(len(labels))
        bins = 3 * c + binned(confidence, b)
        indices = [labels, c + guesses, 2 * c + labels, bins, b + bins, 2 * b + bins]
        inside = labels != NO_CLASS
        # A row with a label that train lacks is a wrong guess of its class.
        values = [value * inside for value in (correct, ones, ones * (labels >= 0), ones, confidence, correct)]
        indices = [np.where(inside, np.maximum(index, 0), 0) for index in indices]
        if self.outside:
            indices.append(3 * (c + b) + np.where(inside, 0, LEVELS) + level(confidence))
            values.append(ones)
        return matrix_of(indices, values, self.width)

    def scores(self, sums: Floats) -> dict[str, Floats]:
        """Metrics from sums (..., K), each (...).

        Macro F1 is the mean over the classes of train that occur in the targets. MCC is Gorodkin's R_K (2004) for C
        classes. ECE is sum_b n_b / n |accuracy_b - confidence_b| (Guo et al. 2017, equation 3).
        """
        hits, guesses, truths = self.counts(sums)
        _, confidence, correct = self.bins_of(sums)
        n = guesses.sum(-1)
        right = hits.sum(-1)
        unseen = n - truths.sum(-1)
        accuracy = ratio(right, n)
        covariance = right * n - (guesses * truths).sum(-1)
        spread = np.sqrt((n**2 - (guesses**2).sum(-1)) * (n**2 - (truths**2).sum(-1) - unseen**2))
        metrics = {
            "macro_f1": macro(f1(hits, guesses, truths), truths),
            "accuracy": accuracy,
            # With one label per row, micro-averaged precision, recall and F1 are all the accuracy.
            "micro_f1": accuracy,
            "mcc": np.divide(covariance, spread, out=np.zeros_like(spread), where=spread > 0),
            "ece": ratio(np.abs(correct - confidence).sum(-1), n),
        }
        if self.outside:
            within, without = np.split(sums[..., -2 * LEVELS :], 2, axis=-1)
            below = without.cumsum(-1) - without / 2
            metrics["outside_auroc"] = ratio((within * below).sum(-1), within.sum(-1) * without.sum(-1))
        return metrics

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        labels = numbers(targets)
        counts = np.bincount(labels[labels >= 0], minlength=len(self.labels))
        return [(counts / counts.sum()).astype(np.float32)] * len(targets)

    def calibration(self, sums: Floats) -> list[dict[str, float]]:
        return calibration_bins(*self.bins_of(sums))

    def confusion(self, targets: Vectors, answers: Vectors) -> NDArray[np.int64]:
        labels, classes = numbers(targets), len(self.labels)
        guesses = np.asarray(answers).reshape(len(labels), classes).argmax(1)
        return np.bincount((labels * classes + guesses)[labels >= 0], minlength=classes**2).reshape(classes, classes)


@dataclass(frozen=True)
class Choice(Scoring):
    """One of the row's choices.

    K = 1 + 3 B sums: rows; rows, confidence and correct rows of each calibration bin.
    """

    bins: int = 15

    names = ("accuracy", "ece")
    constant_name = "most frequent position"

    def in_words(self, fields: Fields, target: Vector) -> str:
        return fields[1 + int(target[0])]

    @property
    def width(self) -> int:
        return 1 + 3 * self.bins

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        count, b = len(targets), self.bins
        right = numbers(targets) == np.fromiter((answer.argmax() for answer in answers), np.int64, count)
        confidence = np.fromiter((answer.max() for answer in answers), np.float64, count)
        bins = 1 + binned(confidence, b)
        indices = [np.zeros(count, dtype=np.int64), bins, b + bins, 2 * b + bins]
        values = [np.ones(count), np.ones(count), confidence, right.astype(np.float64)]
        return matrix_of(indices, values, self.width)

    def scores(self, sums: Floats) -> dict[str, Floats]:
        """Accuracy, and ECE as in `Classification`."""
        n, (_, confidence, correct) = sums[..., 0], np.split(sums[..., 1:], 3, axis=-1)
        return {"accuracy": correct.sum(-1) / n, "ece": np.abs(correct - confidence).sum(-1) / n}

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        """The relative frequencies of the positions of the correct choice."""
        counts = np.bincount(numbers(targets))
        return [(counts / counts.sum()).astype(np.float32)] * len(targets)

    def calibration(self, sums: Floats) -> list[dict[str, float]]:
        rows, confidence, correct = np.split(sums[1:], 3)
        return calibration_bins(rows, confidence, correct)


def level(confidence: Floats) -> NDArray[np.int64]:
    """(N,) confidences -> (N,) levels, equidistant in the logit, because most confidences are close to 1."""
    inside = np.clip(confidence, 1e-12, 1 - 1e-12)
    return np.clip((np.log(inside / (1 - inside)) + 8) / 32 * LEVELS, 0, LEVELS - 1).astype(np.int64)


def binned(confidence: Floats, bins: int) -> NDArray[np.int64]:
    """(N,) confidences -> (N,) indices of their bins."""
    return np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)


def calibration_bins(rows: Floats, confidence: Floats, correct: Floats) -> list[dict[str, float]]:
    """Edges, rows, mean confidence and accuracy of the non-empty bins, from (B,) sums each."""
    return [
        {
            "low": index / len(rows),
            "high": (index + 1) / len(rows),
            "rows": int(count),
            "confidence": float(confidence[index] / count),
            "accuracy": float(correct[index] / count),
        }
        for index, count in enumerate(rows)
        if count
    ]
