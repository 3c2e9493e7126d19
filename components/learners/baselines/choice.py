"""Baselines for a text and its choices: similarity of their TF-IDF vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from components.data.tasks.data import Answer, Fields
from components.learners.base import Candidate, Learner, Rows
from components.learners.baselines import Function
from components.learners.words.features import WordFeatures
from components.learners.words.systems import features_of
from components.settings.section import MOST_FREQUENT

#: Candidates for the factor on the cosines before the softmax; selected by likelihood on the training rows.
SCALES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


@dataclass(frozen=True)
class ChoiceOverlap:
    """Softmax over the scaled cosines of a text with its choices."""

    features: WordFeatures
    scale: float = 1.0

    def cosines(self, rows: Sequence[Fields]) -> list[NDArray[np.float64]]:
        """Cosines of the text with each of the row's choices."""
        pairs = [(text, choice) for text, *choices in rows for choice in choices]
        return np.split(self.features.matrix(pairs)[:, 0], np.cumsum([len(parts) - 1 for parts in rows])[:-1])

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """Probabilities of each row's choices."""
        return [softmax(self.scale * row).astype(np.float32) for row in self.cosines(rows)]

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
        described, arrays = replace(self.features, form="text").dump()
        return described, arrays | {"scale": np.asarray([self.scale])}

    @classmethod
    def load(cls, described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], labels: Sequence[str]) -> Self:
        return cls(replace(WordFeatures.load(described, arrays), form="cosine"), float(arrays["scale"][0]))


def overlap(training: Rows) -> list[Candidate]:
    """The scale is selected by the likelihood of the training rows."""
    model = ChoiceOverlap(features_of(training, "cosine", labelled=False))
    rows = list(zip(model.cosines(training.labelled.fields), training.labelled.labels, strict=True))
    likelihoods = [sum(float(log_softmax(scale * row)[right]) for row, right in rows) for scale in SCALES]
    # At least the smallest positive scale, so that the choices are ranked by cosine.
    scale = SCALES[max(1, int(np.argmax(likelihoods)))]
    return [Candidate.of(replace(model, scale=scale), {"scale": scale})]


def usual_position(training: Rows) -> list[Candidate]:
    """Relative frequencies of the position of the correct choice in training, normalised over the row's choices."""
    shares = training.scoring.constant(training.labelled.targets)[0]

    def answer(choices: int) -> Answer:
        given = np.zeros(choices, dtype=np.float32)
        given[: len(shares)] = shares[:choices]
        return given / given.sum() if given.any() else np.full(choices, 1 / choices, dtype=np.float32)

    return [Candidate.of(Function(lambda rows: [answer(len(parts) - 1) for parts in rows]))]


CHOICE: Final[Mapping[str, Learner]] = {"tfidf-overlap": overlap, MOST_FREQUENT: usual_position}
