"""Baselines for a text and its choices: similarity of their TF-IDF vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from components.data.tasks.data import Answer, Fields
from components.learners.base import Candidate, Rows
from components.learners.baselines.base import Function, Systems
from components.learners.words.features import WordFeatures, cosines
from components.learners.words.systems import counted
from components.learners.words.text import Tfidf

#: Candidates for the factor on the cosines before the softmax; selected by likelihood on the training rows.
SCALES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


@dataclass(frozen=True)
class ChoiceOverlap:
    """Softmax over the scaled cosines of a text with its choices."""

    vectorizer: Tfidf
    scale: float

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """Probabilities of each row's choices."""
        return [softmax(self.scale * row).astype(np.float32) for row in _choices(rows, self.vectorizer)]

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
        described, arrays = WordFeatures("text", (self.vectorizer,)).dump()
        return described, arrays | {"scale": np.asarray([self.scale])}

    @classmethod
    def load(cls, described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], labels: Sequence[str]) -> Self:
        return cls(WordFeatures.load(described, arrays).vectorizers[0], float(arrays["scale"][0]))


def overlap(training: Rows) -> list[Candidate]:
    """The scale is selected by the likelihood of the training rows."""
    vectorizer = counted(training)
    train = _choices(training.labelled.fields, vectorizer)
    right = [int(target[0]) for target in training.labelled.targets]
    likelihoods = [
        sum(float(log_softmax(scale * row)[index]) for row, index in zip(train, right, strict=True)) for scale in SCALES
    ]
    # At least the smallest positive scale, so that the choices are ranked by cosine.
    scale = SCALES[max(1, int(np.argmax(likelihoods)))]
    return [Candidate.of(ChoiceOverlap(vectorizer, scale), {"scale": scale})]


def usual_position(training: Rows) -> list[Candidate]:
    """Relative frequencies of the position of the correct choice in training, normalised over the row's choices."""
    shares = training.scoring.constant(training.labelled.targets)[0]

    def answer(choices: int) -> Answer:
        given = np.zeros(choices, dtype=np.float32)
        given[: len(shares)] = shares[:choices]
        return given / given.sum() if given.any() else np.full(choices, 1 / choices, dtype=np.float32)

    return [Candidate.of(Function(lambda rows: [answer(len(parts) - 1) for parts in rows]))]


def _choices(rows: Sequence[Fields], vectorizer: Tfidf) -> list[NDArray[np.float64]]:
    """Cosines of the text with each of the row's choices."""
    counts = [len(parts) - 1 for parts in rows]
    texts = vectorizer.matrix([parts[0] for parts in rows])[np.repeat(np.arange(len(counts)), counts)]
    choices = vectorizer.matrix([choice for _, *choices in rows for choice in choices])
    return np.split(cosines(texts, choices), np.cumsum(counts)[:-1])


CHOICE = Systems({"tfidf-overlap": overlap}, constant=usual_position)
