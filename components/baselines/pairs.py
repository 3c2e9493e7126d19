"""Baselines for two texts, or a text and its choices: similarity of their TF-IDF vectors.

Document frequencies need no labels; they are those of the whole train split, independent of the label budget.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import log_softmax, softmax
from sklearn.feature_extraction.text import TfidfVectorizer

from components.baselines.base import Data, Predictions, Systems, cosines, tfidf
from components.baselines.texts import regression
from components.tasks.data import Answer, Split

#: Candidates for the factor on the cosines before the softmax; selected by likelihood on the training rows.
SCALES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def cosine(data: Data) -> Predictions:
    """Logistic regression on the cosine of both texts."""
    vectorizer = _counted(data)
    return regression(data, *(_cosines(split, vectorizer)[:, None] for split in (data.train, data.dev, data.test)))


def both(data: Data) -> Predictions:
    """Logistic regression on the vectors u and v of both texts, |u - v|, u v and their cosine; the vocabulary is that
    of the training rows."""
    vectorizer = tfidf().fit([text for parts in data.train.fields for text in parts])

    def features(split: Split) -> Any:
        first, second = _vectors(split, vectorizer)
        cosine = sparse.csr_matrix(cosines(first, second)[:, None])
        return sparse.hstack([first, second, abs(first - second), first.multiply(second), cosine], format="csr")

    predictions = regression(data, *map(features, (data.train, data.dev, data.test)))
    return Predictions(predictions.answers, predictions.details | {"vocabulary": len(vectorizer.vocabulary_)})


def line(data: Data) -> Predictions:
    """Least-squares regression of the number on the cosine of both texts."""
    vectorizer = _counted(data)
    x, y = _cosines(data.train, vectorizer), np.asarray([target[0] for target in data.train.targets])
    # If all cosines are equal, the slope is undefined.
    slope, offset = np.polyfit(x, y, 1) if np.ptp(x) > 0 else (0.0, float(y.mean()))

    def answers(split: Split) -> list[Answer]:
        return list((offset + slope * _cosines(split, vectorizer)).astype(np.float32)[:, None])

    predictions = {"dev": answers(data.dev), "test": answers(data.test)}
    return Predictions(predictions, {"slope": float(slope), "offset": float(offset)})


def overlap(data: Data) -> Predictions:
    """Softmax over the scaled cosines of text and choices."""
    vectorizer = _counted(data)
    train = _choices(data.train, vectorizer)
    right = [int(target[0]) for target in data.train.targets]
    likelihoods = [
        sum(float(log_softmax(scale * row)[index]) for row, index in zip(train, right, strict=True)) for scale in SCALES
    ]
    # At least the smallest positive scale, so that the choices are ranked by cosine.
    scale = SCALES[max(1, int(np.argmax(likelihoods)))]
    predictions = {
        name: [softmax(scale * row).astype(np.float32) for row in _choices(split, vectorizer)]
        for name, split in (("dev", data.dev), ("test", data.test))
    }
    return Predictions(predictions, {"scale": scale})


def usual_position(data: Data) -> Predictions:
    """Relative frequencies of the position of the correct choice in training, normalised over the row's choices."""
    shares = data.scoring.constant(data.train.targets)[0]

    def answer(choices: int) -> Answer:
        known = np.zeros(choices, dtype=np.float32)
        known[: len(shares)] = shares[:choices]
        return known / known.sum() if known.any() else np.full(choices, 1 / choices, dtype=np.float32)

    splits = (("dev", data.dev), ("test", data.test))
    return Predictions({name: [answer(len(parts) - 1) for parts in split.fields] for name, split in splits}, {})


def _counted(data: Data) -> TfidfVectorizer:
    return tfidf().fit([text for parts in data.inputs for text in parts])


def _vectors(split: Split, vectorizer: TfidfVectorizer) -> tuple[Any, Any]:
    first, second = (vectorizer.transform([parts[index] for parts in split.fields]) for index in (0, 1))
    return first, second


def _cosines(split: Split, vectorizer: TfidfVectorizer) -> np.ndarray:
    return cosines(*_vectors(split, vectorizer))


def _choices(split: Split, vectorizer: TfidfVectorizer) -> list[np.ndarray]:
    """Cosines of the text with each of the row's choices."""
    counts = [len(parts) - 1 for parts in split.fields]
    texts = vectorizer.transform(split.texts)[np.repeat(np.arange(len(counts)), counts)]
    choices = vectorizer.transform([choice for _, *choices in split.fields for choice in choices])
    return np.split(cosines(texts, choices), np.cumsum(counts)[:-1])


PAIR = Systems({"tfidf-cosine": cosine, "tfidf-both": both})
SIMILARITY = Systems({"tfidf-cosine": line})
CHOICE = Systems({"tfidf-overlap": overlap}, constant=usual_position)
