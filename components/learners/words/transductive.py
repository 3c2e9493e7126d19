"""Words models that also learn from texts without labels: the train split and `data.unlabelled`.

The features of a text are its latent semantic vector and the mean of its word vectors. Both are fitted once per seed on
the texts of no row that the seed draws (`Rows.free`), so no fold has read its rows, their copies or groups. A logistic
regression on each learns from the labelled rows, and then in rounds from the pseudo-labels that both give to other
texts. The model is the mean of their calibrated logits, which is linear in both vectors."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from components.data.tasks.data import Fields, one_hot
from components.learners.base import Candidate, Rows
from components.learners.unlabelled.self_training import ROUNDS, Round, View, rounds
from components.learners.words.classifier import WordsModel
from components.learners.words.features import LatentFeatures
from components.learners.words.latent import PENALTIES, LatentSemantics, Vectors, WordMeans, dimensions_of
from components.learners.words.linear import LinearModel

#: Maximum number of texts that the vectors are fitted on, and of texts that get pseudo-labels.
MOST_FITTED, MOST_TAUGHT = 25_000, 2_000
#: Seeds whose features are kept: a stage goes through all of them at each budget.
MOST_SEEDS = 8


def exclusive(training: Rows) -> list[Candidate]:
    """The candidates for texts with one label: the model of the labelled rows alone, and the model of each round."""
    return _candidates(training, exclusive=True)


def independent(training: Rows) -> list[Candidate]:
    """The candidates for texts with any number of labels: the same models."""
    return _candidates(training, exclusive=False)


def _candidates(training: Rows, *, exclusive: bool) -> list[Candidate]:
    features, unlabelled = _fitted(training.free, len(training.labels))
    targets = one_hot(training.labelled.targets, labels=len(training.labels))
    always = targets.all(axis=0)
    varying, usual = np.flatnonzero(targets.any(axis=0) & ~always), np.asarray(always, dtype=np.float32)
    details = {"vocabulary": features.vocabulary}
    if not len(varying):
        # Nothing to tell apart.
        nothing = WordsModel(
            features, LinearModel(np.zeros((0, features.width)), np.zeros(0), varying, usual, exclusive)
        )
        return [Candidate.of(nothing, {"round": number, **details}) for number in range(ROUNDS + 1)]
    labelled = features.parts([fields[0] for fields in training.labelled.fields])
    views = [View(mine, other, PENALTIES) for mine, other in zip(labelled, unlabelled, strict=True)]
    return [
        Candidate.of(
            WordsModel(features, _joined(each, varying, usual, exclusive=exclusive)),
            {"round": number, "pseudo_labels": each.pseudo_labels, **details},
        )
        for number, each in enumerate(
            rounds(views, targets[:, varying], exclusive=exclusive, units=training.labelled.units)
        )
    ]


def _joined(of: Round, varying: NDArray[np.int64], usual: NDArray[np.float32], *, exclusive: bool) -> LinearModel:
    """The mean of the calibrated logits of all views, as one linear model."""
    scales = [1 / (temperature * len(of.models)) for temperature in of.temperatures]
    pairs = list(zip(of.models, scales, strict=True))
    weights = np.concatenate([model.weight * scale for model, scale in pairs], axis=1)
    intercepts = np.sum([model.bias * scale for model, scale in pairs], axis=0)
    if exclusive and len(varying) == 2:
        weights, intercepts = weights[1:] - weights[:1], intercepts[1:] - intercepts[:1]
    return LinearModel(weights, intercepts, varying, usual, exclusive)


@lru_cache(maxsize=MOST_SEEDS)
def _fitted(free: tuple[Fields, ...], labels: int) -> tuple[LatentFeatures, tuple[Vectors, Vectors]]:
    """The features that are fitted on texts, and those of the texts that get pseudo-labels."""
    texts = [fields[0] for fields in free[:MOST_FITTED]]
    semantics, means = dimensions_of(labels)
    features = LatentFeatures(LatentSemantics.fit(texts, dimensions=semantics), WordMeans.fit(texts, dimensions=means))
    return features, features.parts(texts[:MOST_TAUGHT])
