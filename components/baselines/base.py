"""The interface of baselines, and the TF-IDF weights that most of them use."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer

from components.scoring import Scoring
from components.tasks.data import Answer, Fields, Split
from components.tokenization.segmenters import Segmentation

#: Candidates for the inverse strength of the L2 penalty; selected on dev.
C_GRID = (1.0, 10.0, 100.0, 1000.0)
#: Maximum number of iterations of the solvers.
ITERATIONS = 1000
#: A word: letters, digits, and Thai vowel and tone marks, which are not letters in Unicode.
WORD = r"[\w\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]+"
_SEGMENTATION = Segmentation("auto")

Fitted = TypeVar("Fitted")


@dataclass(frozen=True)
class Data:
    """The training rows of one label budget and seed, and the rows that are predicted.

    Attributes:
        train: training rows of the run.
        dev, test: the rows that are predicted.
        inputs: inputs of the whole train split, without labels.
        labels: names of the labels.
        scoring: metrics of the task.
    """

    train: Split
    dev: Split
    test: Split
    inputs: Sequence[Fields]
    labels: Sequence[str]
    scoring: Scoring

    def dev_scores(self, answers: Sequence[Answer]) -> dict[str, float]:
        """All metrics of answers on dev."""
        return self.scoring.score(self.dev.fields, self.dev.targets, answers)


@dataclass(frozen=True)
class Predictions:
    """Result of a baseline.

    Attributes:
        answers: `dev`, `test` -> one answer per row.
        details: entries of the run's record.
    """

    answers: dict[str, list[Answer]]
    details: dict[str, Any]


Baseline = Callable[[Data], Predictions]


def most_frequent(data: Data) -> Predictions:
    """The constant prediction that is best on the training targets."""
    answer = data.scoring.constant(data.train.targets)[0]
    return Predictions({name: [answer] * len(split) for name, split in (("dev", data.dev), ("test", data.test))}, {})


@dataclass(frozen=True)
class Systems:
    """The baselines of one kind of task.

    Attributes:
        usual: name -> system.
        characters: further systems, slower, for languages without spaces between words and for `baselines: all`.
        constant: the constant prediction, the lower bound for all other systems.
    """

    usual: Mapping[str, Baseline] = field(default_factory=dict)
    characters: Mapping[str, Baseline] = field(default_factory=dict)
    constant: Baseline = most_frequent


def tfidf(**settings: Any) -> TfidfVectorizer:
    """TF-IDF with term frequency 1 + log(tf) over words; languages without spaces are segmented first."""
    return TfidfVectorizer(preprocessor=spaced, sublinear_tf=True, **{"token_pattern": WORD, **settings})


def spaced(text: str) -> str:
    """Lower-case text with spaces between words. A text without words (`:-)`, an emoji) becomes one word per character:
    its code point."""
    found = _SEGMENTATION.spaced(text).lower()
    if re.search(WORD, found):
        return found
    return " ".join(f"u{ord(character):x}" for character in found if not character.isspace())


def cosines(first: sparse.csr_matrix, second: sparse.csr_matrix) -> np.ndarray:
    """(N,) cosines of the rows of two (N, V) matrices with rows of norm 1 or 0."""
    return np.asarray(first.multiply(second).sum(1)).ravel()


def best_on_dev(
    data: Data,
    fit: Callable[[float], Fitted],
    answers: Callable[[Fitted], list[Answer]],
    grid: Iterable[float] = C_GRID,
) -> tuple[Fitted, float]:
    """The model with the highest primary metric on dev, and its inverse strength of the penalty (the strongest penalty
    at a tie).

    Args:
        data: of the run.
        fit: inverse strength -> model.
        answers: model -> its answers on dev.
        grid: inverse strengths, ascending.
    """
    tried: list[tuple[float, float, Fitted]] = []
    for c in grid:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = fit(c)
        tried.append((data.dev_scores(answers(model))[data.scoring.main], c, model))
    # `max` returns the first at a tie.
    _, c, model = max(tried, key=lambda entry: entry[0])
    return model, c
