"""Self-training and co-training of linear models on fixed features.

A view is a set of features of the same rows. One linear model is fitted per view. In each round, the models of the last
round, calibrated on labelled rows that they have not learned from, label the unlabelled rows together, and every model
is fitted again to the labelled rows and to the pseudo-labels (co-training with averaged teachers: Blum and Mitchell
1998; with one view, self-training: Yarowsky 1995).

Shapes: N labelled rows, U unlabelled rows, F features, C labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from components.tasks.folds import folds_of
from components.unlabelled.pseudo_labels import loss_of, select, teach, temperature_of
from components.unlabelled.regression import Array, Linear, fit

#: Folds by which temperatures and penalties are chosen.
FOLDS = 3
#: Maximum number of iterations of a round, which starts at the model of the round before.
ROUND_STEPS = 20


@dataclass(frozen=True)
class View:
    """Features of the same rows.

    Attributes:
        labelled: (N, F), dense or sparse.
        unlabelled: (U, F).
        penalties: candidates of the L2 penalty of the model; the one with the highest likelihood of labelled rows by
            cross-validation is used, the largest at a tie.
    """

    labelled: Any
    unlabelled: Any
    penalties: Sequence[float]


@dataclass(frozen=True)
class Round:
    """A round of self-training.

    Attributes:
        models: one per view.
        pseudo_labels: number of unlabelled rows with a pseudo-label.
        temperatures: of the teachers, one per view.
    """

    models: list[Linear]
    pseudo_labels: int
    temperatures: list[float]


@dataclass(frozen=True)
class _Fitted:
    penalty: float
    model: Linear
    temperature: float


def rounds(
    views: Sequence[View],
    targets: Array,
    *,
    exclusive: bool,
    count: int,
    confidence: float,
    weight: float,
    steps: int,
    seed: int,
    units: Any = None,
) -> Iterator[Round]:
    """The rounds, each the teacher of the next; round 0 is the models of the labelled rows alone. In round r of R, at
    most r / R of the unlabelled rows have a pseudo-label, the most confident ones of each class
    (`pseudo_labels.select`).

    Args:
        views: at least one.
        targets: (N, C) of 0 and 1.
        exclusive: whether a row has one label.
        count: R.
        confidence: minimum calibrated probability of a pseudo-label.
        weight: of the pseudo-labels relative to that of the labelled rows.
        steps: maximum number of iterations of a fit to the labelled rows.
        seed: of the folds.
        units: (N,) unit of each labelled row, whose rows are in one fold; None: each row is one.
    """
    strata = targets.argmax(axis=1) if exclusive else np.zeros(len(targets), dtype=np.int64)
    several = units is None or len(np.unique(units)) > 1
    folds = folds_of(strata, FOLDS, seed=seed, units=units if several else None)
    first = [_first(view, targets, folds, exclusive=exclusive, steps=steps) for view in views]
    models, temperatures = [one.model for one in first], [one.temperature for one in first]
    ones = np.ones(len(targets))
    yield Round(models, 0, temperatures)
    for number in range(1, count + 1):
        logits = [model.logits(view.unlabelled) for model, view in zip(models, views, strict=True)]
        teacher = teach(logits, temperatures, exclusive=exclusive)
        found = select(
            teacher, targets, exclusive=exclusive, share=number / count, confidence=confidence, weight=weight
        )
        joined, weights = np.concatenate([targets, found.targets]), np.concatenate([ones, found.weights])
        models = [
            fit(
                _stack(view.labelled, view.unlabelled[found.rows]),
                joined,
                weights,
                penalty=one.penalty,
                exclusive=exclusive,
                steps=min(steps, ROUND_STEPS),
                start=model,
            )
            for view, one, model in zip(views, first, models, strict=True)
        ]
        yield Round(models, len(found.rows), temperatures)


def _first(view: View, targets: Array, folds: Any, *, exclusive: bool, steps: int) -> _Fitted:
    """The model of the labelled rows alone, and the temperature that calibrates it."""
    ones, best = np.ones(len(targets)), None
    for penalty in sorted(view.penalties, reverse=True):
        held = np.zeros_like(targets)
        for fold in np.unique(folds):
            inside = folds == fold
            model = fit(
                view.labelled[~inside],
                targets[~inside],
                ones[~inside],
                penalty=penalty,
                exclusive=exclusive,
                steps=steps,
            )
            held[inside] = model.logits(view.labelled[inside])
        temperature = temperature_of(held, targets, exclusive=exclusive)
        loss = loss_of(held / temperature, targets, exclusive=exclusive)
        if best is None or loss < best[0]:
            best = loss, penalty, temperature
    assert best is not None
    _, penalty, temperature = best
    model = fit(view.labelled, targets, ones, penalty=penalty, exclusive=exclusive, steps=steps)
    return _Fitted(penalty, model, temperature)


def _stack(labelled: Any, unlabelled: Any) -> Any:
    if sparse.issparse(labelled):
        return sparse.vstack([labelled, unlabelled], format="csr")
    return np.concatenate([labelled, unlabelled])
