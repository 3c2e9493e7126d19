"""Co-training of linear models on fixed features, one per view (Blum and Mitchell 1998, with averaged teachers).

In each round, the models of the last round, calibrated on labelled rows that they have not learned from, label the
unlabelled rows together, and every model is fitted again.

Shapes: N labelled rows, U unlabelled rows, M rows, F features, C labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from components.data.tasks.budgets import folds_of
from components.data.tasks.calibration import loss_of, temperature_of
from components.learners.words.fits import logistic

#: Rounds of co-training, least confidence of a pseudo-label, and weight of the pseudo-labels relative to the labels.
ROUNDS, CONFIDENCE, WEIGHT = 3, 0.6, 1.0
#: Folds by which temperatures and penalties are chosen.
FOLDS: Final = 3
#: Difference of the logits of a label without rows: the unpenalised bias goes as far as the solver takes it.
ABSENT: Final = 10.0
#: Maximum number of iterations of a fit.
STEPS: Final = 50
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Linear:
    """A linear model of C logits.

    Attributes:
        weight: (C, F).
        bias: (C,).
    """

    weight: Array
    bias: Array

    def logits(self, x: Any) -> Array:
        """(M, F) -> (M, C)."""
        return np.asarray(x @ self.weight.T + self.bias)


@dataclass(frozen=True)
class View:
    """Features of the same rows.

    Attributes:
        labelled: (N, F).
        unlabelled: (U, F).
        penalties: candidates of the L2 penalty of the model; the one with the highest likelihood of labelled rows by
            cross-validation is used, the largest at a tie.
    """

    labelled: NDArray[Any]
    unlabelled: NDArray[Any]
    penalties: Sequence[float]


@dataclass(frozen=True)
class Round:
    """A round of co-training: the models and temperatures of the views, and the number of rows with a pseudo-label."""

    models: list[Linear]
    pseudo_labels: int
    temperatures: list[float]


def rounds(views: Sequence[View], targets: Array, *, exclusive: bool, units: Any = None) -> Iterator[Round]:
    """The rounds, each the teacher of the next; round 0 is the models of the labelled rows alone. In round r of
    `ROUNDS`, at most r / `ROUNDS` of the unlabelled rows have a pseudo-label, the most confident ones of each class
    (`select`).

    `targets`: (N, C) of 0 and 1. `exclusive`: a row has one label. `units`: (N,) units that folds keep together."""
    strata = targets.argmax(axis=1) if exclusive else np.zeros(len(targets), dtype=np.int64)
    several = units is None or len(np.unique(units)) > 1
    folds = folds_of(strata, FOLDS, seed=0, units=units if several else None)
    first = [_first(view, targets, folds, exclusive=exclusive) for view in views]
    models, temperatures = [model for model, _, _ in first], [temperature for _, _, temperature in first]
    yield Round(models, 0, temperatures)
    for number in range(1, ROUNDS + 1):
        logits = [model.logits(view.unlabelled) for model, view in zip(models, views, strict=True)]
        teacher = teach(logits, temperatures, exclusive=exclusive)
        rows, labels, weights = select(teacher, targets, exclusive=exclusive, share=number / ROUNDS)
        models = [
            fit(
                np.concatenate([view.labelled, view.unlabelled[rows]]),
                np.concatenate([targets, labels]),
                np.concatenate([np.ones(len(targets)), weights]),
                penalty=penalty,
                exclusive=exclusive,
            )
            for view, (_, penalty, _) in zip(views, first, strict=True)
        ]
        yield Round(models, len(rows), temperatures)


def _first(view: View, targets: Array, folds: Any, *, exclusive: bool) -> tuple[Linear, float, float]:
    """The model of the labelled rows alone, its penalty, and the temperature that calibrates it."""
    x, ones = view.labelled, np.ones(len(targets))
    tried = []
    for penalty in sorted(view.penalties, reverse=True):
        held = np.zeros_like(targets)
        for fold in np.unique(folds):
            out = folds != fold
            held[~out] = fit(x[out], targets[out], ones[out], penalty=penalty, exclusive=exclusive).logits(x[~out])
        temperature = temperature_of(held, targets, exclusive=exclusive)
        tried.append((loss_of(held / temperature, targets, exclusive=exclusive), penalty, temperature))
    _, penalty, temperature = min(tried, key=lambda entry: entry[0])
    return fit(x, targets, ones, penalty=penalty, exclusive=exclusive), penalty, temperature


def probabilities(logits: Array, *, exclusive: bool) -> Array:
    """(M, C) probabilities: of the labels of a row together, or of each label independently."""
    return np.asarray(softmax(logits, axis=1) if exclusive else expit(logits))


def teach(logits: Sequence[Array], temperatures: Sequence[float], *, exclusive: bool) -> Array:
    """(U, C) mean of the calibrated probabilities of several teachers."""
    pairs = zip(logits, temperatures, strict=True)
    calibrated = [probabilities(each / temperature, exclusive=exclusive) for each, temperature in pairs]
    return np.asarray(np.mean(calibrated, axis=0))


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
    if not exclusive:
        sure = np.maximum(teacher, 1 - teacher).mean(axis=1)
        rows = np.argsort(-sure, kind="stable")[: int(np.ceil(share * count))]
        rows = np.sort(rows[sure[rows] >= CONFIDENCE])
        above = 2 * sure[rows] - 1
        scale = WEIGHT * len(labelled) / max(above.sum(), 1e-12)
        return rows, (teacher[rows] > 0.5).astype(np.float64), scale * above
    best, sure = teacher.argmax(axis=1), teacher.max(axis=1)
    most = int(np.ceil(share * count / labels))
    weights = np.zeros(count)
    for label, given in enumerate(labelled.sum(axis=0)):
        of_label = np.flatnonzero((best == label) & (sure >= CONFIDENCE))
        chosen = of_label[np.argsort(-sure[of_label], kind="stable")[:most]]
        above = (sure[chosen] - 1 / labels) / (1 - 1 / labels)
        weights[chosen] = WEIGHT * given * above / max(above.sum(), 1e-12)
    rows = np.flatnonzero(weights)
    return rows, np.eye(labels)[best[rows]], weights[rows]


def fit(x: NDArray[Any], targets: Array, weights: Array, *, penalty: float, exclusive: bool) -> Linear:
    """Logistic regressions with C = 1 / penalty: one of the exclusive labels, or one for each independent label. `x`:
    (M, F); `targets`: (M, C) of 0 and 1; `weights`: (M,), at least 0."""
    regression = partial(logistic, x, c=1 / penalty, steps=STEPS, weights=weights, rest=ABSENT)
    if exclusive:
        return Linear(*regression(targets.argmax(1), targets.shape[1]))
    pairs = [regression(column, 2) for column in targets.T.astype(np.int64)]
    return Linear(np.stack([weight[1] - weight[0] for weight, _ in pairs]), np.stack([b[1] - b[0] for _, b in pairs]))
