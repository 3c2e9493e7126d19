"""The words model that also learns from texts without labels: the train split and `data.unlabelled`.

Each feature set of `LatentFeatures` is a view of a text (co-training: Blum and Mitchell 1998, with averaged teachers).
The features are fitted once per seed on the texts of no row that the seed draws (`Rows.free`), so no fold has read its
rows, their copies or groups. A logistic regression on each view learns from the labelled rows, and then in rounds from
the pseudo-labels that all of them, calibrated on labelled rows that they have not learned from, give to other texts.
The model is the mean of their calibrated logits, which is linear in all views.

Shapes: N labelled rows, U unlabelled rows, F features, C labels."""

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from components.data.tasks.budgets import folds_of
from components.data.tasks.calibration import loss_of, temperature_of
from components.data.tasks.data import Fields, Labels, one_hot
from components.learners.base import Candidate, Rows
from components.learners.words.classifier import WordsModel
from components.learners.words.latent import LatentFeatures, Vectors, dimensions_of
from components.learners.words.linear import LinearModel, fit_logits

#: Maximum number of texts that the vectors are fitted on, and of texts that get pseudo-labels.
MOST_FITTED, MOST_TAUGHT = 25_000, 2_000
#: Seeds whose features are kept: a stage goes through all of them at each budget.
MOST_SEEDS = 8
#: Rounds of co-training, least confidence of a pseudo-label, and weight of the pseudo-labels relative to the labels.
ROUNDS, CONFIDENCE, WEIGHT = 3, 0.6, 1.0
#: Candidates for the L2 penalty; the one with the highest likelihood of labelled rows by cross-validation is used, the
#: largest at a tie.
PENALTIES: Final = (0.3, 0.1, 0.03)
#: Folds by which temperatures and penalties are chosen.
FOLDS: Final = 3
#: Maximum number of iterations of a fit; difference of the logits of a label without rows, as the unpenalised intercept
#: goes as far as the solver takes it.
_FIT: Final = partial(fit_logits, steps=50, rest=10.0)
Array = NDArray[np.float64]
#: (N, F) features of labelled and (U, F) of unlabelled rows.
View = tuple[NDArray[Any], NDArray[Any]]


def latent(training: Rows, *, exclusive: bool) -> list[Candidate]:
    """The model of the labelled rows alone, and the model of each round. `exclusive`: a text has one label."""
    features, unlabelled = _fitted(training.free, len(training.labels))
    rows = training.labelled
    given = one_hot(rows.targets, labels=len(training.labels))
    varies = np.asarray(given.any(axis=0) & ~given.all(axis=0))
    views = list(zip(features.parts([fields[0] for fields in rows.fields]), unlabelled, strict=True))
    # Without a label that varies there is nothing to tell apart.
    nothing = [(LinearModel(np.zeros((0, features.width)), np.zeros(0)), 0)] * (ROUNDS + 1)
    several = rounds(views, given[:, varies], exclusive=exclusive, units=rows.units) if varies.any() else nothing
    result = []
    for number, (model, taught) in enumerate(several):
        weights, intercepts = np.zeros((len(varies), features.width)), np.zeros(len(varies))
        weights[varies], intercepts[varies] = model.weights, model.intercepts
        linear = LinearModel(weights, intercepts).of_labels(given, exclusive=exclusive)
        details = {"round": number, "pseudo_labels": taught, "vocabulary": features.vocabulary}
        result.append(Candidate.of(WordsModel(features, linear), details))
    return result


@lru_cache(maxsize=MOST_SEEDS)
def _fitted(free: tuple[Fields, ...], labels: int) -> tuple[LatentFeatures, tuple[Vectors, Vectors]]:
    """The features that are fitted on texts, and those of the texts that get pseudo-labels."""
    texts = [fields[0] for fields in free[:MOST_FITTED]]
    features = LatentFeatures.fit(texts, dimensions=dimensions_of(labels))
    return features, features.parts(texts[:MOST_TAUGHT])


def rounds(
    views: Sequence[View], given: Array, *, exclusive: bool, units: Any = None
) -> Iterator[tuple[LinearModel, int]]:
    """The model of the C logits on all views after each round, and its number of rows with a pseudo-label. Round 0 is
    that of the labelled rows alone; each round is the teacher of the next. In round r of `ROUNDS`, at most r / `ROUNDS`
    of the unlabelled rows have a pseudo-label, the most confident ones of each class (`select`).

    `given`: (N, C) of 0 and 1. `exclusive`: a row has one label. `units`: (N,) units that folds keep together."""
    strata = given.argmax(axis=1) if exclusive else np.zeros(len(given), dtype=np.int64)
    several = units is None or len(np.unique(units)) > 1
    folds = folds_of(strata, FOLDS, seed=0, units=units if several else None)
    chosen = [_chosen(labelled, given, folds, exclusive=exclusive) for labelled, _ in views]
    models: list[LinearModel] = []
    rows, labels, weights = np.zeros(0, dtype=np.int64), given[:0], np.zeros(0)
    for number in range(ROUNDS + 1):
        if number:
            logits = [m.values(free) / of for m, (_, free), (_, of) in zip(models, views, chosen, strict=True)]
            teacher = np.mean([softmax(each, axis=1) if exclusive else expit(each) for each in logits], axis=0)
            rows, labels, weights = select(teacher, given, exclusive=exclusive, share=number / ROUNDS)
        models = [
            _FIT(
                np.concatenate([labelled, free[rows]]),
                np.concatenate([given, labels]),
                weights=np.concatenate([np.ones(len(given)), weights]),
                c=1 / penalty,
                exclusive=exclusive,
            )
            for (labelled, free), (penalty, _) in zip(views, chosen, strict=True)
        ]
        # The mean of the calibrated logits.
        parts = [model.tempered(len(views) * of) for model, (_, of) in zip(models, chosen, strict=True)]
        weights_of_all = np.concatenate([part.weights for part in parts], axis=1)
        yield LinearModel(weights_of_all, np.sum([part.intercepts for part in parts], axis=0)), len(rows)


def _chosen(x: NDArray[Any], given: Array, folds: Labels, *, exclusive: bool) -> tuple[float, float]:
    """The penalty of the model of the labelled rows alone, and the temperature that calibrates it."""
    tried = []
    for penalty in PENALTIES:
        held = np.zeros_like(given)
        for fold in np.unique(folds):
            out = folds != fold
            held[~out] = _FIT(x[out], given[out], c=1 / penalty, exclusive=exclusive).values(x[~out])
        temperature = temperature_of(held, given, exclusive=exclusive)
        tried.append((loss_of(held / temperature, given, exclusive=exclusive), penalty, temperature))
    return min(tried, key=lambda entry: entry[0])[1:]


def select(teacher: Array, labelled: Array, *, exclusive: bool, share: float) -> tuple[NDArray[np.int64], Array, Array]:
    """Pseudo-labels of the most confident rows of each class, by rank, so that the classes that the teacher prefers do
    not crowd out the others (Zou et al. 2018, "Class-balanced self-training").

    Exclusive labels: of the rows whose most probable label is c, the `share` U / C with the highest probability, at
    least `CONFIDENCE`. A row's weight is proportional to its confidence above chance, (p - 1/C) / (1 - 1/C), and the
    weights of a class add up to `WEIGHT` times its number of labelled rows. Independent labels: the `share` of all rows
    with the highest confidence, the mean over the labels of max(p, 1 - p); the weights add up to `WEIGHT` N.

    Args:
        teacher: (U, C) calibrated probabilities.
        labelled: (N, C) of 0 and 1.
        exclusive: whether a row has one label.
        share: between 0 and 1.

    Returns:
        (K,) indices of rows, ascending; (K, C) their labels, of 0 and 1; (K,) their weights.
    """
    count, labels = teacher.shape
    if exclusive:
        best, sure, chance, numbers = teacher.argmax(axis=1), teacher.max(axis=1), 1 / labels, labelled.sum(axis=0)
        most = int(np.ceil(share * count / labels))
    else:
        # All rows are of one class.
        best, sure = np.zeros(count, dtype=np.int64), np.maximum(teacher, 1 - teacher).mean(axis=1)
        chance, numbers, most = 0.5, np.asarray([len(labelled)]), int(np.ceil(share * count))
    weights = np.zeros(count)
    for label, number in enumerate(numbers):
        of_label = np.flatnonzero((best == label) & (sure >= CONFIDENCE))
        chosen = of_label[np.argsort(-sure[of_label], kind="stable")[:most]]
        above = (sure[chosen] - chance) / (1 - chance)
        weights[chosen] = WEIGHT * number * above / max(above.sum(), 1e-12)
    rows = np.flatnonzero(weights)
    return rows, np.eye(labels)[best[rows]] if exclusive else (teacher[rows] > 0.5).astype(np.float64), weights[rows]
