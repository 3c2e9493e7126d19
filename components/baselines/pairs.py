"""Baselines for two texts, or a text and its choices: similarity of their TF-IDF vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.feature_extraction.text import TfidfVectorizer

from components.baselines.base import Systems
from components.tasks.data import Answer, Fields
from components.tasks.selection import Candidate, Training
from components.words.features import cosines
from components.words.systems import SYSTEMS, counted

#: Candidates for the factor on the cosines before the softmax; selected by likelihood on the training rows.
SCALES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


@dataclass(frozen=True)
class Line:
    """A number as a linear function of the cosine of two texts."""

    vectorizer: TfidfVectorizer
    slope: float
    offset: float

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """[value] of each row."""
        return list((self.offset + self.slope * _cosines(rows, self.vectorizer)).astype(np.float32)[:, None])


def line(training: Training) -> list[Candidate]:
    """Least-squares regression of the number on the cosine of both texts."""
    vectorizer = counted(training)
    x = _cosines(training.rows.fields, vectorizer)
    y = np.asarray([target[0] for target in training.rows.targets])
    # If all cosines are equal, the slope is undefined.
    slope, offset = np.polyfit(x, y, 1) if np.ptp(x) > 0 else (0.0, float(y.mean()))
    found = Line(vectorizer, float(slope), float(offset))
    return [Candidate.of(found, {"slope": found.slope, "offset": found.offset})]


@dataclass(frozen=True)
class Overlap:
    """Softmax over the scaled cosines of a text with its choices."""

    vectorizer: TfidfVectorizer
    scale: float

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """Probabilities of each row's choices."""
        return [softmax(self.scale * row).astype(np.float32) for row in _choices(rows, self.vectorizer)]


def overlap(training: Training) -> list[Candidate]:
    """Softmax over the scaled cosines of text and choices."""
    vectorizer = counted(training)
    train = _choices(training.rows.fields, vectorizer)
    right = [int(target[0]) for target in training.rows.targets]
    likelihoods = [
        sum(float(log_softmax(scale * row)[index]) for row, index in zip(train, right, strict=True)) for scale in SCALES
    ]
    # At least the smallest positive scale, so that the choices are ranked by cosine.
    scale = SCALES[max(1, int(np.argmax(likelihoods)))]
    return [Candidate.of(Overlap(vectorizer, scale), {"scale": scale})]


@dataclass(frozen=True)
class UsualPosition:
    """Relative frequencies of the position of the correct choice, normalised over the row's choices."""

    shares: Answer

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """Probabilities of each row's choices."""
        return [self._answer(len(parts) - 1) for parts in rows]

    def _answer(self, choices: int) -> Answer:
        known = np.zeros(choices, dtype=np.float32)
        known[: len(self.shares)] = self.shares[:choices]
        return known / known.sum() if known.any() else np.full(choices, 1 / choices, dtype=np.float32)


def usual_position(training: Training) -> list[Candidate]:
    """Relative frequencies of the position of the correct choice in training."""
    return [Candidate.of(UsualPosition(training.scoring.constant(training.rows.targets)[0]))]


def _cosines(rows: Sequence[Fields], vectorizer: TfidfVectorizer) -> np.ndarray:
    first, second = (vectorizer.transform([parts[index] for parts in rows]) for index in (0, 1))
    return cosines(first, second)


def _choices(rows: Sequence[Fields], vectorizer: TfidfVectorizer) -> list[np.ndarray]:
    """Cosines of the text with each of the row's choices."""
    counts = [len(parts) - 1 for parts in rows]
    texts = vectorizer.transform([parts[0] for parts in rows])[np.repeat(np.arange(len(counts)), counts)]
    choices = vectorizer.transform([choice for _, *choices in rows for choice in choices])
    return np.split(cosines(texts, choices), np.cumsum(counts)[:-1])


PAIR = Systems(SYSTEMS["pair"].usual)
SIMILARITY = Systems({"tfidf-cosine": line})
CHOICE = Systems({"tfidf-overlap": overlap}, constant=usual_position)
