"""What every kind of task offers to whoever scores it.

Every score is a function of a few sums over rows. So the rows of a test set are reduced once to a sparse matrix (N, K);
a bootstrap draw is a vector of N weights, all draws are one matrix product, and every score of every draw comes from
the same few lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]
#: The parts of N inputs, such as (text,) or (question, context).
Inputs = Sequence[tuple[str, ...]]
#: N vectors, ragged: what is right of each row, or what a model says of it (see the kind's module).
Vectors = Sequence[NDArray[np.floating[Any]]]

#: Numbers of `Resamples` that are in memory at once.
CHUNK = 10_000_000
#: Scores that are better when lower: none of them decides anything.
LOWER_IS_BETTER = frozenset({"ece"})
#: Names of scores as text shows them; those that are not here lose their underscores.
TITLES = {
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "mcc": "MCC",
    "ece": "calibration error",
    "outside_auroc": "AUROC of what belongs to no class",
    "spearman": "Spearman's rho",
    "pearson": "Pearson's r",
    "span_f1": "span F1",
    "f1": "F1",
    "f1_characters": "F1 of characters",
    "exact_match_characters": "exact match without white space",
}


class Scoring(ABC):
    """The scores of one kind of task.

    Attributes:
        names: of the scores; the first one decides (on dev, in comparisons, at promotion).
        ranges: what each of them can be at all.
        strata: parts that a label budget is counted in: the number of classes, or 1 where a budget is a number of rows.
        averages: whether the mean of several systems' answers is an answer.
        constant_name: what answers where there is no model yet (`constant`), in words.
    """

    names: tuple[str, ...]
    strata: int = 1
    averages: bool = True
    constant_name: str

    @property
    def main(self) -> str:
        """The deciding score."""
        return self.names[0]

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """From 0 to 1, unless a kind says otherwise."""
        return dict.fromkeys(self.names, (0.0, 1.0))

    def fitting(self, targets: Vectors) -> Scoring:
        """This scoring with what these targets need beyond it."""
        return self

    @property
    @abstractmethod
    def width(self) -> int:
        """K."""

    @abstractmethod
    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        """N rows -> (N, K)."""

    @abstractmethod
    def scores(self, sums: Floats) -> dict[str, Floats]:
        """Every score of sums (..., K), each (...)."""

    @abstractmethod
    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        """N answers that look at no input: the best that one can say knowing the `targets` alone."""

    def renamed(self, answers: Vectors, labels: Sequence[str]) -> Vectors:
        """Answers of a model that numbers its `labels` in an order of its own, as this scoring numbers them; as they
        are where answers name no label."""
        return answers

    def classes(self, sums: Floats) -> dict[str, dict[str, float]]:
        """Parts that are scored apart, from sums (K,): name -> `f1`, `rows` and what else the kind counts of it."""
        return {}

    def class_f1(self, sums: Floats) -> dict[str, Floats]:
        """The F1 of every part of `classes`, of sums (..., K), each (...)."""
        return {}

    def calibration(self, sums: Floats) -> list[dict[str, float]]:
        """Rows, mean confidence and accuracy of every bin that holds rows, from sums (K,); empty where nothing claims
        to be a probability."""
        return []

    def confusion(self, targets: Vectors, answers: Vectors) -> NDArray[np.int64] | None:
        """(C, C) counts, rows are the true labels, columns the guesses; None where a row has not exactly one label."""
        return None

    def total(self, fields: Inputs, targets: Vectors, answers: Vectors) -> Floats:
        """Sums (K,) over all rows."""
        return np.asarray(self.statistics(fields, targets, answers).sum(0), dtype=np.float64).ravel()

    def score(self, fields: Inputs, targets: Vectors, answers: Vectors) -> dict[str, float]:
        """Every score of N rows."""
        return {name: float(value) for name, value in self.scores(self.total(fields, targets, answers)).items()}


def title(name: str) -> str:
    """A score's name as text shows it."""
    return TITLES.get(name, name.replace("_", " "))


def numbers(vectors: Vectors) -> NDArray[np.int64]:
    """N vectors of length 1 -> (N,)."""
    return np.fromiter((vector[0] for vector in vectors), dtype=np.int64, count=len(vectors))


def ratio(above: Floats, below: Floats) -> Floats:
    """above / below, and 0 where nothing was counted."""
    return np.divide(above, below, out=np.zeros(np.broadcast_shapes(above.shape, below.shape)), where=below > 0)


def f1(hits: Floats, guesses: Floats, truths: Floats) -> Floats:
    """2 hits / (guesses + truths): the harmonic mean of precision and recall; 0 where there is neither."""
    return 2 * hits / np.maximum(guesses + truths, 1)


def macro(values: Floats, truths: Floats) -> Floats:
    """(..., C) -> (...): the mean over the classes that occur among the true ones; 0 where there are none."""
    occurs = truths > 0
    return np.where(occurs, values, 0).sum(-1) / np.maximum(occurs.sum(-1), 1)


def retrieval(names: Sequence[str], hits: Floats, guesses: Floats, truths: Floats) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and number of true ones of each of C classes, from their (C,) counts."""
    columns = {
        "precision": hits / np.maximum(guesses, 1),
        "recall": hits / np.maximum(truths, 1),
        "f1": f1(hits, guesses, truths),
        "rows": truths,
    }
    return {
        name: {column: float(values[place]) for column, values in columns.items()} for place, name in enumerate(names)
    }


def columns(answers: Vectors, labels: Sequence[str], order: Sequence[str]) -> list[NDArray[np.float32]]:
    """(N, C) values of `labels` -> (N, D) of the names in `order`; 0 for those that have none."""
    found = np.zeros((len(answers), len(order)), dtype=np.float32)
    found[:, [order.index(label) for label in labels]] = np.asarray(answers).reshape(len(answers), len(labels))
    return list(found)


def by_name(names: Sequence[str], values: Floats) -> dict[str, Floats]:
    """(..., C) -> each name with its (...)."""
    return {name: values[..., place] for place, name in enumerate(names)}


class Resamples:
    """R bootstrap draws of N rows with replacement, each as the number of times that a row was drawn. Every system is
    scored on the same draws, so that differences between systems are paired.

    Args:
        rows: N.
        resamples: R.
        seed: of the draws.
    """

    def __init__(self, rows: int, *, resamples: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        shares = np.full(rows, 1 / rows)
        step = max(1, CHUNK // rows)
        self._counts = [
            rng.multinomial(rows, shares, size=min(step, resamples - start)).astype(np.uint16)
            for start in range(0, resamples, step)
        ]

    def sums(self, statistics: sparse.csr_array) -> Floats:
        """(N, K) -> (R, K)."""
        return np.concatenate([(statistics.T @ counts.T.astype(np.float64)).T for counts in self._counts])


def resampled(statistics: Sequence[sparse.csr_array], *, resamples: int, seed: int = 0) -> list[Floats]:
    """For each matrix (N, K) its sums (R, K) on R draws, the same for all."""
    bootstrap = Resamples(statistics[0].shape[0], resamples=resamples, seed=seed)
    return [bootstrap.sums(matrix) for matrix in statistics]
