"""Words models that also learn from the texts of the train split without labels.

The features of a text are its latent semantic vector and the mean of its word vectors (`components.words.latent`), both
fitted on the texts of the train split. A logistic regression on each learns from the labelled rows, and then in rounds
from the pseudo-labels that both give to the other texts (`components.unlabelled.self_training`). The model is the mean
of their calibrated logits, which is linear in both vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from components.tasks.data import Fields, one_hot
from components.tasks.selection import Candidate, Training
from components.unlabelled.self_training import Round, View, rounds
from components.unlabelled.texts import digest_of
from components.words.classifier import LATENT, WordsModel
from components.words.latent import PENALTIES, LatentSemantics, Vectors, WordMeans, dimensions_of
from components.words.linear import LinearModel

#: Rounds of self-training, least confidence of a pseudo-label, and weight of the pseudo-labels relative to the labels.
ROUNDS, CONFIDENCE, WEIGHT = 3, 0.6, 1.0
#: Maximum number of texts that the vectors are fitted on, and of texts that get pseudo-labels.
MOST_FITTED, MOST_TAUGHT = 25_000, 2_000
#: Maximum number of iterations of a regression.
ITERATIONS: Final = 50


@dataclass(frozen=True)
class LatentFeatures:
    """Dense features of one text.

    Attributes:
        semantics: fitted.
        means: fitted.
    """

    semantics: LatentSemantics
    means: WordMeans
    form: ClassVar[str] = LATENT

    @property
    def vocabulary(self) -> int:
        """Number of terms and words."""
        return len(self.semantics.vectorizer.vocabulary_) + len(self.means.words)

    @property
    def widths(self) -> tuple[int, int]:
        """Dimensions of both vectors."""
        return len(self.semantics.components), len(self.means.centre)

    @property
    def width(self) -> int:
        """F."""
        return sum(self.widths)

    def parts(self, texts: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Both vectors of N texts."""
        return self.semantics.vectors(texts), self.means.vectors(texts)

    def matrix(self, rows: Sequence[Fields]) -> Any:
        """(N, F). A row does not depend on the others."""
        if not rows:
            return np.zeros((0, self.width))
        return np.concatenate(self.parts([row[0] for row in rows]), axis=1, dtype=np.float64)

    def words(self, row: Fields) -> tuple[int, int]:
        """Number of words of the row's text, and how many of them are unknown."""
        found = self.means.ids(row[0])
        return len(found), int((found < 0).sum())

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `load` reads: JSON, and arrays by name."""
        semantics, arrays = self.semantics.dump()
        means, further = self.means.dump()
        return {"form": self.form, "semantics": semantics, "means": means}, arrays | further

    @classmethod
    def load(cls, described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> LatentFeatures:
        """The features that `dump` has described.

        Raises:
            ValueError, KeyError, TypeError: they do not fit each other.
        """
        return cls(LatentSemantics.load(described["semantics"], arrays), WordMeans.load(described["means"], arrays))


def exclusive(training: Training) -> list[Candidate]:
    """For texts with one label: the model of the labelled rows alone, and that of each round."""
    return _candidates(training, exclusive=True)


def independent(training: Training) -> list[Candidate]:
    """For texts with any number of labels: the same."""
    return _candidates(training, exclusive=False)


def _candidates(training: Training, *, exclusive: bool) -> list[Candidate]:
    features, free = _fitted(tuple(training.inputs), len(training.labels))
    targets = one_hot(training.rows.targets, labels=len(training.labels))
    always = targets.all(axis=0)
    known, usual = np.flatnonzero(targets.any(axis=0) & ~always), np.asarray(always, dtype=np.float32)
    details = {"vocabulary": features.vocabulary}
    if not len(known):
        # Nothing to tell apart.
        nothing = LinearModel(np.zeros((0, features.width)), np.zeros(0), known, usual, exclusive)
        return [
            Candidate.of(WordsModel(features, nothing), {"round": number, **details}) for number in range(ROUNDS + 1)
        ]
    used = {digest_of(fields) for fields in training.rows.fields}
    left = np.asarray([digest not in used for digest in free.digests], dtype=bool)
    labelled = features.parts([fields[0] for fields in training.rows.fields])
    views = [View(own, other[left], PENALTIES) for own, other in zip(labelled, free.parts, strict=True)]
    found = rounds(
        views,
        targets[:, known],
        exclusive=exclusive,
        count=ROUNDS,
        confidence=CONFIDENCE,
        weight=WEIGHT,
        steps=ITERATIONS,
        seed=0,
        units=training.rows.units,
    )
    return [
        Candidate.of(
            WordsModel(features, _joined(one, known, usual, exclusive=exclusive)),
            {"round": number, "pseudo_labels": one.pseudo_labels, **details},
        )
        for number, one in enumerate(found)
    ]


def _joined(found: Round, known: NDArray[np.int64], usual: NDArray[np.float32], *, exclusive: bool) -> LinearModel:
    """The mean of the calibrated logits of all views, as one linear model."""
    scales = [1 / (temperature * len(found.models)) for temperature in found.temperatures]
    pairs = list(zip(found.models, scales, strict=True))
    weights = np.concatenate([model.weight * scale for model, scale in pairs], axis=1)
    intercepts = np.sum([model.bias * scale for model, scale in pairs], axis=0)
    if exclusive and len(known) == 2:
        weights, intercepts = weights[1:] - weights[:1], intercepts[1:] - intercepts[:1]
    return LinearModel(weights, intercepts, known, usual, exclusive)


@dataclass(frozen=True)
class _Free:
    """Texts without labels: their digests, and their vectors."""

    digests: list[bytes]
    parts: tuple[Vectors, Vectors]


@lru_cache(maxsize=1)
def _fitted(inputs: tuple[Fields, ...], labels: int) -> tuple[LatentFeatures, _Free]:
    """The features that are fitted on the inputs, and the texts that get pseudo-labels."""
    distinct = sorted({digest_of(fields): fields[0] for fields in inputs}.items())
    texts = [text for _, text in distinct[:MOST_FITTED]]
    semantics, means = dimensions_of(labels)
    features = LatentFeatures(LatentSemantics.fit(texts, dimensions=semantics), WordMeans.fit(texts, dimensions=means))
    taught = distinct[:MOST_TAUGHT]
    return features, _Free([digest for digest, _ in taught], features.parts([text for _, text in taught]))
