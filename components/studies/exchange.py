"""Sentences with two words exchanged, and how different the vectors of both versions are."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from components.models.encoder import Encoder
from components.studies.occurrences import Sentence, of_letters, states

#: Number of most frequent words that may precede exchanged words, and of those that are not exchanged.
FRAMES, COMMON = 20, 100
#: Folds of the probe.
FOLDS = 5
#: Distance below which two vectors are equal but for rounding.
ROUNDING = 1e-6

Floats = NDArray[np.float64]


def exchanged(sentences: Sequence[Sentence]) -> list[tuple[Sentence, Sentence]]:
    """Sentences in which two words follow the same frequent word, each with the version in which they are exchanged."""
    counts = Counter(word for sentence in sentences for word in sentence.words)
    ranked = [word for word, _ in counts.most_common(max(FRAMES, COMMON))]
    frames, common = set(ranked[:FRAMES]), set(ranked[:COMMON])
    pairs = []
    for sentence in sentences:
        words = sentence.words
        places = [
            index
            for index in range(1, len(words))
            if words[index - 1] in frames and of_letters(words[index]) and words[index] not in common
        ]
        options = (
            (first, second)
            for first in places
            for second in places
            if first < second and words[first - 1] == words[second - 1] and words[first] != words[second]
        )
        if (chosen := next(options, None)) is not None:
            pairs.append((sentence, _swapped(sentence, *chosen)))
    return pairs


def _swapped(sentence: Sentence, first: int, second: int) -> Sentence:
    (a, b), (c, d) = sentence.spans[first], sentence.spans[second]
    text = sentence.text[:a] + sentence.text[c:d] + sentence.text[b:c] + sentence.text[a:b] + sentence.text[d:]
    longer = (d - c) - (b - a)
    spans = list(sentence.spans)
    spans[first + 1 : second] = [(start + longer, end + longer) for start, end in spans[first + 1 : second]]
    spans[first], spans[second] = (a, b + longer), (c + longer, d)
    return Sentence(text, spans)


def distances(ours: Floats, others: Floats) -> Floats:
    """(N,) 1 - cos of the rows; exactly 0 where they differ by rounding only."""
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(others, axis=1)
    measured: Floats = 1 - (ours * others).sum(1) / np.maximum(norms, 1e-12)
    return np.where((norms < 1e-12) | (measured < ROUNDING), 0.0, measured)


def probe(originals: Floats, others: Floats) -> float:
    """Cross-validated accuracy of a logistic regression that tells the originals from the others."""
    x, y = np.concatenate([originals, others]), np.repeat([1, 0], len(originals))
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        groups = np.tile(np.arange(len(originals)), 2)
        predicted = cross_val_predict(model, x, y, groups=groups, cv=GroupKFold(FOLDS))
    return float((predicted == y).mean())


def text_vectors(encoder: Encoder, sentences: Sequence[Sentence]) -> list[Floats]:
    """The mean of the words' vectors of each of N sentences: for the embedding and each layer (N, D)."""
    means = {number: [layer.mean(0, dtype=np.float64) for layer in of] for number, _, of in states(encoder, sentences)}
    zeros = [np.zeros_like(layer) for layer in next(iter(means.values()))]
    rows = [means.get(number, zeros) for number in range(len(sentences))]
    return [np.stack(layer) for layer in zip(*rows, strict=True)]


def measures(originals: Floats, others: Floats) -> dict[str, float]:
    """Distance, relative distance and accuracy of the probe, from (N, D) vectors of both versions."""
    distance = float(distances(originals, others).mean())
    between = float(distances(originals, np.roll(originals, 1, axis=0)).mean())
    return {
        "distance": distance,
        "relative": distance / between if between else 0.0,
        "probe": probe(originals, others) if distance else 0.5,
    }
