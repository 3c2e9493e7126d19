"""Co-training of linear models on fixed features, one per view (Blum and Mitchell 1998, with averaged teachers).

In each round, the models of the last round, calibrated on labelled rows that they have not learned from, label the
unlabelled rows together, and every model is fitted again.

Shapes: N labelled rows, U unlabelled rows, M rows, F features, C labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, softmax

from components.data.tasks.budgets import folds_of
from components.data.tasks.calibration import loss_of, temperature_of

#: Rounds of co-training, least confidence of a pseudo-label, and weight of the pseudo-labels relative to the labels.
ROUNDS, CONFIDENCE, WEIGHT = 3, 0.6, 1.0
#: Folds by which temperatures and penalties are chosen.
FOLDS: Final = 3
#: Maximum number of iterations of a fit, and of one in a round, which starts at the model of the round before.
STEPS, ROUND_STEPS = 50, 20
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
                steps=min(STEPS, ROUND_STEPS),
                start=model,
            )
            for view, (_, penalty, _), model in zip(views, first, models, strict=True)
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


def fit(
    x: NDArray[Any],
    targets: Array,
    weights: Array,
    *,
    penalty: float,
    exclusive: bool,
    steps: int = STEPS,
    start: Linear | None = None,
) -> Linear:
    """Minimise sum_i weights_i loss_i + penalty / 2 |W|^2 over W and b by L-BFGS, as scikit-learn's LogisticRegression
    with C = 1 / penalty: of two exclusive labels, W is the difference of their weights.

    The loss of a row is the cross entropy of its targets with a softmax of the logits, or the sum of the C binary cross
    entropies. Products with float32 features are in float32. `x`: (M, F); `targets`: (M, C) probabilities; `weights`:
    (M,), at least 0; `start`: None for 0."""
    labels, features = targets.shape[1], x.shape[1]
    scale = weights[:, None]
    weighted = scale * targets
    mass = weighted.sum(axis=1, keepdims=True)
    size = labels * features
    if exclusive and (targets.sum(0) > 0).sum() == 2:
        penalty *= 2  # the square of the difference is twice the sum of the squares
    # Mixed products would convert all features at every iteration.
    kind = np.float32 if x.dtype == np.float32 else np.float64

    def objective(flat: Array) -> tuple[float, Array]:
        weight, bias = flat[:size].reshape(labels, features), flat[size:]
        logits = np.asarray(x @ weight.T.astype(kind), dtype=np.float64) + bias
        if exclusive:
            # As scipy's log_softmax, whose checks of the input take longer than this.
            logits -= logits.max(axis=1, keepdims=True)
            difference = np.exp(logits)
            total = difference.sum(axis=1, keepdims=True)
            loss = -(weighted * (logits - np.log(total))).sum()
            difference *= mass / total
            difference -= weighted
        else:
            # log(1 + exp(z)) - t z
            loss = (scale * (np.logaddexp(0, logits) - targets * logits)).sum()
            difference = scale * (expit(logits) - targets)
        gradient = np.asarray(x.T @ difference.astype(kind), dtype=np.float64).T + penalty * weight
        return float(loss + penalty / 2 * (weight**2).sum()), np.concatenate([gradient.ravel(), difference.sum(0)])

    begin = np.zeros(size + labels) if start is None else np.concatenate([start.weight.ravel(), start.bias])
    solved = minimize(objective, begin, jac=True, method="L-BFGS-B", options={"maxiter": steps, "gtol": 1e-5})
    return Linear(solved.x[:size].reshape(labels, features), solved.x[size:])
