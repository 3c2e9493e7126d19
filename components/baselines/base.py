"""What a baseline is given and what it gives back, and the TF-IDF weights that most of them share."""

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

#: Inverse strengths of the L2 penalty; dev decides, as it does for the fine-tuned systems.
C_GRID = (1.0, 10.0, 100.0, 1000.0)
ITERATIONS = 1000
#: Letters, digits and the signs above and below Thai letters, which Unicode does not count among the letters.
WORD = r"[\w\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]+"
_SEGMENTATION = Segmentation("auto")

Fitted = TypeVar("Fitted")


@dataclass(frozen=True)
class Data:
    """One draw of labels, and what it is scored on.

    Attributes:
        inputs: the inputs of the whole train split, drawn or not: texts without labels.
        labels: names of the labels.
    """

    train: Split
    dev: Split
    test: Split
    inputs: Sequence[Fields]
    labels: Sequence[str]
    scoring: Scoring

    def dev_scores(self, answers: Sequence[Answer]) -> dict[str, float]:
        """Every score of answers on dev."""
        return self.scoring.score(self.dev.fields, self.dev.targets, answers)


@dataclass(frozen=True)
class Predictions:
    """A baseline's answers, and what belongs into its record.

    Attributes:
        answers: dev, test -> an answer a row.
    """

    answers: dict[str, list[Answer]]
    details: dict[str, Any]


Baseline = Callable[[Data], Predictions]


def most_frequent(data: Data) -> Predictions:
    """The best that one can say without looking: the shares of the training labels, say."""
    answer = data.scoring.constant(data.train.targets)[0]
    return Predictions({name: [answer] * len(split) for name, split in (("dev", data.dev), ("test", data.test))}, {})


@dataclass(frozen=True)
class Systems:
    """The baselines of one kind of task.

    Attributes:
        usual: name -> system.
        characters: further systems, slower, for languages without spaces between words and for `baselines: all`.
        constant: predicts the same whatever the input; the minimum that every other system has to beat.
    """

    usual: Mapping[str, Baseline] = field(default_factory=dict)
    characters: Mapping[str, Baseline] = field(default_factory=dict)
    constant: Baseline = most_frequent


def tfidf(**settings: Any) -> TfidfVectorizer:
    """Term frequencies 1 + log(tf) over words; languages without spaces are cut into words first."""
    return TfidfVectorizer(preprocessor=spaced, sublinear_tf=True, **{"token_pattern": WORD, **settings})


def spaced(text: str) -> str:
    """Small letters, with spaces between the words of languages that have none. A text without words (`:-)`, an emoji)
    is the names of its characters."""
    found = _SEGMENTATION.spaced(text).lower()
    if re.search(WORD, found):
        return found
    return " ".join(f"u{ord(character):x}" for character in found if not character.isspace())


def cosines(first: sparse.csr_matrix, second: sparse.csr_matrix) -> np.ndarray:
    """(N,) of the rows of two matrices whose rows have length one (or none)."""
    return np.asarray(first.multiply(second).sum(1)).ravel()


def best_on_dev(
    data: Data,
    fit: Callable[[float], Fitted],
    answers: Callable[[Fitted], list[Answer]],
    grid: Iterable[float] = C_GRID,
) -> tuple[Fitted, float]:
    """The model whose strength of penalty dev likes best, and that strength (the strongest penalty at a tie).

    Args:
        fit: inverse strength -> model.
        answers: model -> its answers on dev.
    """
    tried: list[tuple[float, float, Fitted]] = []
    for c in grid:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = fit(c)
        tried.append((data.dev_scores(answers(model))[data.scoring.main], c, model))
    # The first of equals.
    _, c, model = max(tried, key=lambda entry: entry[0])
    return model, c
