"""The interface of metrics.

Every metric is a function of a few sums over rows. The rows of a test set are reduced once to a sparse matrix (N, K),
so that the scores without some of the rows follow from a difference of sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]
#: The parts of one input, such as (text,) or (question, context).
Fields = tuple[str, ...]
#: The parts of N inputs.
Inputs = Sequence[Fields]
#: N vectors of different lengths: the targets, or a model's answers (see the modules of this package).
Vectors = Sequence[NDArray[np.floating[Any]]]
Vector = NDArray[Any]
#: Class -> `f1`, `rows` and further metrics of the kind; None where the targets have no row of the class.
Classes = dict[str, dict[str, float | None]]

#: Metrics that are better when lower; none of them is used for selection or promotion.
LOWER_IS_BETTER = frozenset({"ece", "mae"})
#: Metric -> (minimum, maximum); of the others (0, 1).
RANGES = {
    **dict.fromkeys(("mcc", "spearman", "pearson"), (-1.0, 1.0)),
    "r2": (-np.inf, 1.0),
    "mae": (0.0, np.inf),
}
#: Metric -> its name in text; for other metrics underscores become spaces.
TITLES = {
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "mcc": "MCC",
    "ece": "calibration error",
    "outside_auroc": "out-of-class AUROC",
    "spearman": "Spearman's rho",
    "pearson": "Pearson's r",
    "r2": "R²",
    "mae": "mean absolute error",
    "span_f1": "span F1",
    "f1": "F1",
    "f1_characters": "F1 of characters",
    "exact_match_characters": "exact match without white space",
}


#: (true, predicted, size) of a wrong answer; None for a right one.
Judged = tuple[str, str, float] | None
#: What a target without labels is called.
NO_LABEL = "no label"


class Scoring(ABC):
    """The metrics of one kind of task, and its targets and answers in words.

    Attributes:
        names: of the metrics; the first is the primary metric (selection on dev, comparisons, promotion).
        constant_name: description of the constant prediction (`constant`).
        score_name: what `described` gives beside a class.
        outcomes: names of the classes that `described` gives; empty: their number differs, or there are none.
        bins: B, intervals of equal width of the confidence, which include their upper edge (Guo et al. 2017, section
            2). 3 B sums follow those of the classes: rows, confidence and correct rows. 0: there is no confidence.
        shares: whether answers are probabilities of labels that exclude each other; empty: they are none.
    """

    names: tuple[str, ...]
    bins: int = 0
    strata: int = 1
    averages: bool = True
    constant_name: str
    score_name: str = "confidence"
    outcomes: Sequence[str] = ()
    shares: Literal["exclusive", "independent", ""] = ""

    @property
    def main(self) -> str:
        """The primary metric."""
        return self.names[0]

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Metric -> (minimum, maximum)."""
        return {name: RANGES.get(name, (0.0, 1.0)) for name in self.names}

    def fitting(self, targets: Vectors) -> Scoring:
        """This scoring, extended by metrics that these targets need."""
        return self

    @property
    @abstractmethod
    def width(self) -> int:
        """K, the number of sums."""

    @abstractmethod
    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        """The contribution of each of N rows to the sums, (N, K)."""

    def of_part(self, statistics: sparse.csr_array) -> sparse.csr_array:
        """The statistics of some of the rows, as a set of their own."""
        return statistics

    @abstractmethod
    def scores(self, sums: Floats) -> dict[str, Floats]:
        """Metrics from sums (..., K), each (...)."""

    @abstractmethod
    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        """The best constant prediction for these targets, N times."""

    def renamed(self, answers: Vectors, labels: Sequence[str]) -> Vectors:
        """Answers of a model with other `labels`, or another order of them, in the order of this scoring's labels;
        unchanged for kinds without labels."""
        return answers

    def in_words(self, fields: Fields, target: Vector) -> str:
        """A target as text."""
        return ", ".join(self.named(target))

    def judged(self, fields: Fields, target: Vector, answer: Vector) -> Judged:
        """A wrong answer in words, and its confidence; of a number its error, of a sentence the share of wrong tags."""
        best = int(answer.argmax())
        return None if target[0] in (-1, best) else self.compared(fields, target, np.array([best]), answer[best])

    def compared(self, fields: Fields, target: Vector, given: Vector, size: float) -> Judged:
        """A wrong answer, given as a target."""
        return self.in_words(fields, target), self.in_words(fields, given), float(size)

    def described(self, answer: Vector) -> tuple[int, float]:
        """Index of the predicted class, -1 without one, and a score of an answer."""
        return int(answer.argmax()), float(answer.max())

    def named(self, target: Vector) -> tuple[str, ...]:
        """What a target without labels is counted as."""
        return tuple(f"{value:g}" for value in target)

    @property
    def class_names(self) -> Sequence[str]:
        """The C classes whose true positives, predictions and targets are the first 3 C sums; none by default."""
        return ()

    def counts(self, sums: Floats) -> tuple[Floats, Floats, Floats]:
        """True positives, predictions and targets of the classes, each (..., C), from sums (..., K)."""
        hits, guesses, truths = np.split(sums[..., : 3 * len(self.class_names)], 3, axis=-1)
        return hits, guesses, truths

    def pooled(self, sums: Floats) -> dict[str, Floats]:
        """Metrics of all classes together. Macro F1 is the mean over the classes that occur in the targets."""
        counts = self.counts(sums)
        hits, guesses, truths = (each.sum(-1) for each in counts)
        return {
            "micro_f1": f1(hits, guesses, truths),
            "precision": ratio(hits, guesses),
            "recall": ratio(hits, truths),
            "macro_f1": macro(f1(*counts), counts[2]),
        }

    def classes(self, sums: Floats) -> Classes:
        """Precision, recall, F1 and number of true items of each class, from sums (K,). A class without true items has
        no score: predictions of it are errors of the other classes."""
        hits, guesses, truths = self.counts(sums)
        columns = {
            "precision": hits / np.maximum(guesses, 1),
            "recall": hits / np.maximum(truths, 1),
            "f1": f1(hits, guesses, truths),
        }
        return {
            name: {column: float(values[index]) if truths[index] else None for column, values in columns.items()}
            | {"rows": float(truths[index])}
            for index, name in enumerate(self.class_names)
        }

    def class_f1(self, sums: Floats) -> dict[str, Floats]:
        """F1 per class from sums (..., K), each (...)."""
        values = f1(*self.counts(sums))
        return {name: values[..., index] for index, name in enumerate(self.class_names)}

    def bins_of(self, sums: Floats) -> Floats:
        """Rows, confidence and correct rows of each calibration bin, (3, ..., B)."""
        first = 3 * len(self.class_names)
        return np.stack(np.split(sums[..., first : first + 3 * self.bins], 3, axis=-1))

    def binned(self, confidence: Floats, correct: Floats) -> tuple[list[NDArray[np.int64]], list[Floats]]:
        """Columns and values, (N,) each, of the sums over bins."""
        number = np.clip(np.ceil(confidence * self.bins).astype(np.int64) - 1, 0, self.bins - 1)
        first = 3 * len(self.class_names) + number
        return [first, first + self.bins, first + 2 * self.bins], [np.ones(len(number)), confidence, correct]

    def calibration_error(self, sums: Floats) -> Floats:
        """sum_b n_b / n |accuracy_b - confidence_b| (Guo et al. 2017, equation 3)."""
        rows, confidence, correct = self.bins_of(sums)
        return ratio(np.abs(correct - confidence).sum(-1), rows.sum(-1))

    def calibration(self, sums: Floats) -> list[dict[str, float]]:
        """Edges, rows, mean confidence and accuracy of the non-empty calibration bins, from sums (K,)."""
        return [
            {
                "low": index / self.bins,
                "high": (index + 1) / self.bins,
                "rows": int(count),
                "confidence": float(confidence / count),
                "accuracy": float(correct / count),
            }
            for index, (count, confidence, correct) in enumerate(self.bins_of(sums).T)
            if count
        ]

    def confusion(self, targets: Vectors, answers: Vectors) -> NDArray[np.int64] | None:
        """(C, C) counts, true label by predicted label; None for kinds without exactly one label per row."""
        return None

    def total(self, fields: Inputs, targets: Vectors, answers: Vectors) -> Floats:
        """Sums (K,) over N rows."""
        return np.asarray(self.statistics(fields, targets, answers).sum(0), dtype=np.float64).ravel()

    def score(self, fields: Inputs, targets: Vectors, answers: Vectors) -> dict[str, float]:
        """All metrics of N rows."""
        return {name: float(value) for name, value in self.scores(self.total(fields, targets, answers)).items()}


class Labelled(Scoring):
    """Metrics of rows with labels, whose answers are (C,) probabilities."""

    labels: Sequence[str]

    @property
    def outcomes(self) -> Sequence[str]:  # type: ignore[override]
        return self.labels

    @property
    def class_names(self) -> Sequence[str]:
        return self.labels

    def renamed(self, answers: Vectors, labels: Sequence[str]) -> Vectors:
        return columns(answers, labels, self.labels)


def title(name: str) -> str:
    return TITLES.get(name, name.replace("_", " "))


def numbers(vectors: Vectors) -> NDArray[np.int64]:
    """N vectors of length 1 -> (N,)."""
    return np.fromiter((vector[0] for vector in vectors), dtype=np.int64, count=len(vectors))


def frequencies(targets: Vectors, classes: int = 0) -> list[NDArray[np.float32]]:
    """The relative frequencies of the labels of N rows with one label each, N times."""
    labels = numbers(targets)
    counts = np.bincount(labels[labels >= 0], minlength=classes)
    return [(counts / counts.sum()).astype(np.float32)] * len(targets)


def ratio(above: Floats, below: Floats) -> Floats:
    """above / below, 0 where `below` is 0."""
    return np.divide(above, below, out=np.zeros(np.broadcast_shapes(above.shape, below.shape)), where=below > 0)


def f1(hits: Floats, guesses: Floats, truths: Floats) -> Floats:
    """2 hits / (guesses + truths), the harmonic mean of precision and recall; 0 where both counts are 0."""
    return 2 * hits / np.maximum(guesses + truths, 1)


def macro(values: Floats, truths: Floats) -> Floats:
    """Mean over the classes that occur in the targets, (..., C) -> (...); 0 if none does."""
    occurs = truths > 0
    return np.where(occurs, values, 0).sum(-1) / np.maximum(occurs.sum(-1), 1)


def columns(answers: Vectors, labels: Sequence[str], order: Sequence[str]) -> list[NDArray[np.float32]]:
    """(N, C) values of `labels` -> (N, D) values of the labels in `order`; 0 for labels without a value."""
    ordered = np.zeros((len(answers), len(order)), dtype=np.float32)
    ordered[:, [order.index(label) for label in labels]] = np.asarray(answers).reshape(len(answers), len(labels))
    return list(ordered)


def matrix_of(indices: Sequence[NDArray[np.int64]], values: Sequence[Floats], width: int) -> sparse.csr_array:
    """(N, K) with `values` of N rows in the columns `indices`, both (N,) each."""
    rows = np.tile(np.arange(len(indices[0])), len(indices))
    shape = (len(indices[0]), width)
    return sparse.csr_array((np.concatenate(values), (rows, np.concatenate(indices))), shape=shape)
