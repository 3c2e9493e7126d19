"""Which words support a prediction.

Words models with TF-IDF of one text: exact. The logit of the predicted label minus the mean of the others is an
intercept and one product per term; the product of an n-gram is divided equally among its words.

Other models: occlusion (Zeiler and Fergus 2014; Li, Monroe and Jurafsky 2016). A word's weight is the change of the
predicted label's probability, or of the predicted number, when the word is removed.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from components.formats.words import word_bounds
from components.inference.prediction import Classifier
from components.tasks.data import Answer, Fields
from components.tasks.words import words_of
from components.words.classifier import WordsClassifier
from components.words.features import WordFeatures
from components.words.linear import LinearModel

#: Maximum number of predictions for one explanation; of longer texts, neighbouring words are removed together.
MOST: Final = 160
#: Kinds whose answers are probabilities of labels or a number.
KINDS: Final = ("classification", "pair", "multilabel", "similarity", "regression")


@dataclass(frozen=True)
class Piece:
    """A part of the text with its weight: positive if it supports the prediction. `weight` is None between words."""

    text: str
    weight: float | None = None


@dataclass(frozen=True)
class Explanation:
    """The weights of the words of each part of the input.

    Attributes:
        parts: pieces of each part; joined, they are the text.
        how: exact or occlusion.
    """

    parts: Sequence[Sequence[Piece]]
    how: Literal["exact", "occlusion"]

    @property
    def largest(self) -> float:
        """The largest absolute weight; 0 without words."""
        return max((abs(piece.weight) for part in self.parts for piece in part if piece.weight is not None), default=0)


def explain(classifier: Classifier, fields: Fields, answer: Answer) -> Explanation | None:
    """The weights of the words for an answer; None for kinds with other answers, and for a text of one word.

    Args:
        classifier: the model.
        fields: the input.
        answer: of the classifier to this input.
    """
    if classifier.kind not in KINDS:
        return None
    index = int(answer.argmax()) if len(answer) > 1 else 0
    if (exact := _exact(classifier, fields, index)) is not None:
        return exact
    units = [words_of(text, marks="joined") for text in fields]
    count = sum(map(len, units))
    if count < 2:
        return None
    size = -(-count // MOST)
    removed = [
        (part, group) for part, spans in enumerate(units) for group in _groups(spans, size) if len(group) < len(spans)
    ]
    rows = [_without(fields, part, group) for part, group in removed]
    if not rows:
        return None
    answers = classifier.answer(rows)
    weights: list[dict[tuple[int, int], float]] = [{} for _ in fields]
    for (part, group), changed in zip(removed, answers, strict=True):
        weights[part] |= dict.fromkeys(group, float(answer[index] - changed[index]))
    return Explanation([_pieces(text, known) for text, known in zip(fields, weights, strict=True)], "occlusion")


def _groups(spans: Sequence[tuple[int, int]], size: int) -> Iterator[Sequence[tuple[int, int]]]:
    for start in range(0, len(spans), size):
        yield spans[start : start + size]


def _without(fields: Fields, part: int, spans: Sequence[tuple[int, int]]) -> Fields:
    text = fields[part]
    start, end = spans[0][0], spans[-1][1]
    # The space after the word goes with it.
    while end < len(text) and text[end].isspace():
        end += 1
    return (*fields[:part], text[:start] + text[end:], *fields[part + 1 :])


def _pieces(text: str, weights: dict[tuple[int, int], float]) -> list[Piece]:
    pieces, position = [], 0
    for (start, end), weight in sorted(weights.items()):
        if start > position:
            pieces.append(Piece(text[position:start]))
        pieces.append(Piece(text[start:end], weight))
        position = end
    return [*pieces, Piece(text[position:])] if position < len(text) else pieces


def _exact(classifier: Classifier, fields: Fields, index: int) -> Explanation | None:
    """The exact weights of a linear model on TF-IDF of one text; None for other models."""
    if not isinstance(classifier, WordsClassifier) or len(classifier.models) > 1:
        return None
    features, linear = classifier.models[0].features, classifier.models[0].linear
    if not isinstance(features, WordFeatures) or features.form != "text" or len(fields) != 1:
        return None
    if isinstance(linear, LinearModel):
        direction = _direction(linear, index)
        if direction is None:
            return None
    else:
        direction = linear.weights[0]
    row = features.matrix([fields])
    products = np.asarray(row.multiply(direction).todense()).ravel()
    units = words_of(fields[0], marks="joined")
    weights = np.zeros(len(units))
    offset = 0
    for vectorizer in features.vectorizers:
        prepared = vectorizer.build_preprocessor()(fields[0])
        spans = word_bounds(prepared, marks="joined")
        if len(spans) != len(units):  # a text without words, of which each character is one
            return None
        occurrences = list(_terms(vectorizer, prepared, [start for start, _ in spans]))
        known = [(vectorizer.vocabulary_[term], of) for term, of in occurrences if term in vectorizer.vocabulary_]
        counts = np.bincount([column for column, _ in known], minlength=len(vectorizer.vocabulary_))
        for column, of in known:
            weights[of] += products[offset + column] / counts[column] / len(of)
        offset += len(vectorizer.vocabulary_)
    pieces = _pieces(fields[0], dict(zip(units, weights.tolist(), strict=True)))
    return Explanation([pieces], "exact")


def _direction(linear: LinearModel, index: int) -> np.ndarray | None:
    """(F,) by which features change the margin of a label; None for a label without a function."""
    position = np.flatnonzero(linear.classes == index)
    if not len(position):
        return None
    own = int(position[0])
    if not linear.exclusive:
        return np.asarray(linear.weights[own])
    if len(linear.classes) == 2:
        return np.asarray(linear.weights[0] if own else -linear.weights[0])
    others = (linear.weights.sum(0) - linear.weights[own]) / (len(linear.classes) - 1)
    return np.asarray(linear.weights[own] - others)


def _terms(vectorizer: object, prepared: str, starts: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """The terms of a prepared text as the vectorizer makes them, each with the indices of its words."""
    low, high = vectorizer.ngram_range  # type: ignore[attr-defined]
    if vectorizer.analyzer == "char_wb":  # type: ignore[attr-defined]
        for match in re.finditer(r"\S+", prepared):
            padded = f" {match.group()} "
            units = list(range(bisect_left(starts, match.start()), bisect_left(starts, match.end())))
            for size in range(low, high + 1):
                for start in range(max(1, len(padded) - size + 1)):
                    yield padded[start : start + size], units
                if size >= len(padded):  # a short word is its own n-gram, once
                    break
        return
    tokens = [(prepared[a:b], bisect_right(starts, a) - 1) for a, b in word_bounds(prepared, marks="none")]
    for size in range(low, high + 1):
        for start in range(len(tokens) - size + 1):
            chosen = tokens[start : start + size]
            yield " ".join(token for token, _ in chosen), sorted({unit for _, unit in chosen})
