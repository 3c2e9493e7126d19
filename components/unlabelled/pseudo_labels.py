"""Pseudo-labels: calibrated, class-balanced, weighted by confidence.

Shapes: N labelled rows, U unlabelled rows, C labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from components.unlabelled.regression import Array, probabilities

#: Bounds of the temperature of a calibration.
TEMPERATURES = (0.05, 20.0)


def temperature_of(logits: Array, targets: Array, *, exclusive: bool) -> float:
    """The temperature T with the highest likelihood of the targets under logits / T (Guo et al. 2017, section 4.2).

    One more row of each label is counted, so that a few rows that are all right do not make the model certain (Platt
    1999, section 2.2).

    Args:
        logits: (N, C), of rows that the model has not learned from.
        targets: (N, C) of 0 and 1.
        exclusive: whether a row has one label.
    """

    count, labels = targets.shape
    smoothed = (count * targets + 1) / (count + (labels if exclusive else 2))

    def loss(log_temperature: float) -> float:
        return loss_of(logits / np.exp(log_temperature), smoothed, exclusive=exclusive)

    low, high = np.log(TEMPERATURES)
    return float(np.exp(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-4}).x))


def loss_of(logits: Array, targets: Array, *, exclusive: bool) -> float:
    """Negative log-likelihood of (N, C) targets in nats, summed."""
    if exclusive:
        return float(-(targets * log_softmax(logits, axis=1)).sum())
    return float((np.logaddexp(0, logits) - targets * logits).sum())


@dataclass(frozen=True)
class PseudoLabels:
    """Rows with pseudo-labels.

    Attributes:
        rows: (K,) indices, ascending.
        targets: (K, C) of 0 and 1.
        weights: (K,).
    """

    rows: NDArray[np.int64]
    targets: Array
    weights: Array


def teach(logits: Sequence[Array], temperatures: Sequence[float], *, exclusive: bool) -> Array:
    """(U, C) mean of the calibrated probabilities of several teachers."""
    found = [
        probabilities(own / temperature, exclusive=exclusive)
        for own, temperature in zip(logits, temperatures, strict=True)
    ]
    return np.asarray(np.mean(found, axis=0))


def select(
    teacher: Array, labelled: Array, *, exclusive: bool, share: float, confidence: float, weight: float
) -> PseudoLabels:
    """Pseudo-labels of the most confident rows of each class, by rank, so that the classes that the teacher prefers do
    not crowd out the others (Zou et al. 2018, "Class-balanced self-training").

    Exclusive labels: of the rows whose most probable label is c, the `share` U / C with the highest probability, at
    least `confidence`. A row's weight is proportional to its confidence above chance, (p - 1/C) / (1 - 1/C), and the
    weights of a class add up to `weight` times its number of labelled rows. Independent labels: the `share` of all rows
    with the highest confidence, the mean over the labels of max(p, 1 - p); the weights add up to `weight` N.

    Args:
        teacher: (U, C) calibrated probabilities.
        labelled: (N, C) of 0 and 1.
        exclusive: whether a row has one label.
        share: between 0 and 1.
        confidence: minimum confidence.
        weight: of the pseudo-labels relative to that of the labelled rows.
    """
    count, labels = teacher.shape
    if not exclusive:
        sure = np.maximum(teacher, 1 - teacher).mean(axis=1)
        rows = np.argsort(-sure, kind="stable")[: int(np.ceil(share * count))]
        rows = np.sort(rows[sure[rows] >= confidence])
        above = 2 * sure[rows] - 1
        scale = weight * len(labelled) / max(above.sum(), 1e-12)
        return PseudoLabels(rows, (teacher[rows] > 0.5).astype(np.float64), scale * above)
    best, sure = teacher.argmax(axis=1), teacher.max(axis=1)
    most = int(np.ceil(share * count / labels))
    weights = np.zeros(count)
    for label, given in enumerate(labelled.sum(axis=0)):
        of_label = np.flatnonzero((best == label) & (sure >= confidence))
        chosen = of_label[np.argsort(-sure[of_label], kind="stable")[:most]]
        above = (sure[chosen] - 1 / labels) / (1 - 1 / labels)
        weights[chosen] = weight * given * above / max(above.sum(), 1e-12)
    rows = np.flatnonzero(weights)
    return PseudoLabels(rows, np.eye(labels)[best[rows]], weights[rows])
