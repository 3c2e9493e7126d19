"""Baselines for one text: TF-IDF with logistic regression or a linear support vector machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from components.baselines.base import ITERATIONS, Data, Predictions, Systems, best_on_dev, tfidf
from components.tasks.data import Answer

#: Candidates for the inverse strength of the penalty of a support vector machine.
MARGINS = (0.01, 0.1, 1.0, 10.0)


def words(data: Data, *, ngrams: tuple[int, int]) -> Predictions:
    """Logistic regression on word n-grams; the vocabulary is that of the training rows."""
    return _regression(data, [tfidf(ngram_range=ngrams)])


def words_and_characters(data: Data) -> Predictions:
    """Logistic regression on words, word pairs and character n-grams."""
    return _regression(data, _both())


def margin(data: Data) -> Predictions:
    """A linear support vector machine on the same features. A softmax (two classes: a sigmoid) of its distances from
    the hyperplanes gives uncalibrated probabilities."""
    x, x_dev, x_test, size = _matrices(data, _both())

    def answers(machine: LinearSVC, rows: Any) -> list[Answer]:
        distances = machine.decision_function(rows)
        if distances.ndim == 1:
            right = expit(distances)
            return _full(machine.classes_, np.stack([1 - right, right], axis=1), len(data.labels))
        return _full(machine.classes_, softmax(distances, axis=1), len(data.labels))

    machine, c = best_on_dev(
        data,
        lambda c: LinearSVC(C=c, max_iter=ITERATIONS, random_state=0).fit(x, data.train.labels),
        lambda machine: answers(machine, x_dev),
        MARGINS,
    )
    return Predictions({"dev": answers(machine, x_dev), "test": answers(machine, x_test)}, {"c": c, "vocabulary": size})


def one_against_rest(data: Data, *, ngrams: tuple[int, int]) -> Predictions:
    """One logistic regression per label, with the same strength of the penalty."""
    x, x_dev, x_test, size = _matrices(data, [tfidf(ngram_range=ngrams)])
    given = np.zeros((len(data.train), len(data.labels)), dtype=bool)
    for row, target in enumerate(data.train.targets):
        given[row, target.astype(np.int64)] = True
    varies = given.any(0) & ~given.all(0)

    def fit(c: float) -> dict[int, LogisticRegression]:
        return {
            int(label): LogisticRegression(C=c, max_iter=ITERATIONS).fit(x, given[:, label])
            for label in np.flatnonzero(varies)
        }

    def answers(models: dict[int, LogisticRegression], rows: Any) -> list[Answer]:
        # A label that all training rows have, or none, has probability 1 or 0.
        found = np.tile(given.all(0).astype(np.float32), (rows.shape[0], 1))
        for label, model in models.items():
            found[:, label] = model.predict_proba(rows)[:, 1]
        return list(found)

    models, c = best_on_dev(data, fit, lambda models: answers(models, x_dev))
    return Predictions({"dev": answers(models, x_dev), "test": answers(models, x_test)}, {"c": c, "vocabulary": size})


def regression(data: Data, x: Any, x_dev: Any, x_test: Any) -> Predictions:
    """Multinomial logistic regression on given features (N, V) of train, dev and test."""

    def answers(model: LogisticRegression, rows: Any) -> list[Answer]:
        return _full(model.classes_, model.predict_proba(rows), len(data.labels))

    model, c = best_on_dev(
        data,
        lambda c: LogisticRegression(C=c, max_iter=ITERATIONS).fit(x, data.train.labels),
        lambda model: answers(model, x_dev),
    )
    return Predictions({"dev": answers(model, x_dev), "test": answers(model, x_test)}, {"c": c})


def _regression(data: Data, vectorizers: Sequence[TfidfVectorizer]) -> Predictions:
    *features, size = _matrices(data, vectorizers)
    predictions = regression(data, *features)
    return Predictions(predictions.answers, predictions.details | {"vocabulary": size})


def _both() -> list[TfidfVectorizer]:
    return [tfidf(ngram_range=(1, 2)), tfidf(analyzer="char_wb", ngram_range=(2, 4), token_pattern=None)]


def _matrices(data: Data, vectorizers: Sequence[TfidfVectorizer]) -> tuple[Any, Any, Any, int]:
    """Features (N, V) of train, dev and test, concatenated over the vectorizers, and V."""
    parts = [
        (vectorizer.fit_transform(data.train.texts), *map(vectorizer.transform, (data.dev.texts, data.test.texts)))
        for vectorizer in vectorizers
    ]
    train, dev, test = (sparse.hstack(column, format="csr") for column in zip(*parts, strict=True))
    return train, dev, test, train.shape[1]


def _full(classes: np.ndarray, probabilities: np.ndarray, count: int) -> list[Answer]:
    """Probabilities of all classes; 0 for classes without training rows."""
    found = np.zeros((len(probabilities), count), dtype=np.float32)
    found[:, classes] = probabilities
    return list(found)


CLASSIFICATION = Systems(
    {"tfidf-words": partial(words, ngrams=(1, 1)), "tfidf-words-pairs": partial(words, ngrams=(1, 2))},
    characters={"tfidf-words-characters": words_and_characters, "svm-words-characters": margin},
)
MULTILABEL = Systems(
    {
        "tfidf-words": partial(one_against_rest, ngrams=(1, 1)),
        "tfidf-words-pairs": partial(one_against_rest, ngrams=(1, 2)),
    }
)
