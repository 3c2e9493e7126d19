"""Calibration of probabilities by a temperature, fitted on rows that the model has not learned from.

Shapes: N rows, C labels.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, softmax

from components.data.scoring import Scoring
from components.data.scoring.base import Floats, Vectors
from components.data.tasks.data import Answer, one_hot

#: Bounds of a temperature.
TEMPERATURES: Final = (0.05, 20.0)
#: Smallest probability whose logarithm is taken, and smallest difference of one from 1 (half of float32's spacing).
LEAST: Final = 1e-300
LEAST_REST: Final = 2.0**-25


def temperature_of(logits: Floats, targets: Floats, *, exclusive: bool) -> float:
    """The temperature T with the highest likelihood of the targets under logits / T (Guo et al. 2017, section 4.2) and
    a normal prior on log T with mean 0 and std 1, so that few rows change T little.

    Args:
        logits: (N, C), of rows that the model has not learned from.
        targets: (N, C) of 0 and 1.
        exclusive: whether a row has one label.
    """

    def loss(log_temperature: float) -> float:
        tempered = logits / np.exp(log_temperature)
        return loss_of(tempered, targets, exclusive=exclusive) + log_temperature**2 / 2

    low, high = np.log(TEMPERATURES)
    return float(np.exp(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-4}).x))


def loss_of(logits: Floats, targets: Floats, *, exclusive: bool) -> float:
    """Negative log-likelihood of (N, C) targets in nats, summed."""
    if exclusive:
        return float(-(targets * log_softmax(logits, axis=1)).sum())
    return float((np.logaddexp(0, logits) - targets * logits).sum())


def temperature_for(scoring: Scoring, targets: Vectors, answers: Vectors) -> float:
    """The temperature for answers to held-out rows; 1 for kinds of task without probabilities of labels.

    A label without training rows (its only row is the held-out one) has the probability 0 at every temperature, and a
    label of all training rows has the probability 1. Such probabilities do not depend on the temperature and are left
    out.

    Args:
        scoring: of the task.
        targets: of the rows; rows of no class are left out.
        answers: (N, C) probabilities.
    """
    rows = [row for row, target in enumerate(targets) if not (target < 0).any()]
    if not scoring.shares or not rows:
        return 1.0
    exclusive = scoring.shares == "exclusive"
    probabilities = np.stack([answers[row] for row in rows])
    given = one_hot([np.asarray(targets[row], dtype=np.float64) for row in rows], labels=probabilities.shape[1])
    logits = _logits(probabilities, exclusive=exclusive)
    if exclusive:
        learned = (probabilities > 0)[given > 0]
        logits, given = logits[learned], given[learned]
    else:
        learned = (probabilities > 0) & (probabilities < 1)
        logits, given = logits[learned][:, None], given[learned][:, None]
    return temperature_of(logits, given, exclusive=exclusive) if len(logits) else 1.0


def calibrated(
    scoring: Scoring, targets: Vectors, answers: Vectors, *, folds: NDArray[np.int64] | None
) -> tuple[float, list[Answer]]:
    """The temperature for answers to held-out rows, and the answers to the rows of each fold at the temperature of the
    other folds.

    Args:
        scoring: of the task.
        targets: of the rows.
        answers: (N, C) probabilities.
        folds: (N,) fold of each row; None: all rows have the temperature of all rows.
    """
    temperature, exclusive = temperature_for(scoring, targets, answers), scoring.shares == "exclusive"
    if folds is None:
        return temperature, tempered(answers, temperature, exclusive=exclusive)
    result = [np.asarray(answer) for answer in answers]
    for fold in np.unique(folds):
        others, inside = np.flatnonzero(folds != fold).tolist(), np.flatnonzero(folds == fold).tolist()
        of_others = temperature_for(scoring, [targets[row] for row in others], [answers[row] for row in others])
        of_fold = tempered([answers[row] for row in inside], of_others, exclusive=exclusive)
        for row, answer in zip(inside, of_fold, strict=True):
            result[row] = answer
    return temperature, result


def tempered(answers: Sequence[NDArray[Any]], temperature: float, *, exclusive: bool) -> list[Answer]:
    """(N, C) probabilities at a temperature. A row does not depend on the others."""
    if temperature == 1 or not len(answers):
        return list(answers)
    logits = _logits(np.stack(list(answers)), exclusive=exclusive) / temperature
    result = softmax(logits, axis=1) if exclusive else expit(logits)
    return list(result.astype(np.float32))


def _logits(probabilities: NDArray[Any], *, exclusive: bool) -> Floats:
    """Logits of (N, C) probabilities; of exclusive ones their logarithms."""
    values = probabilities.astype(np.float64)
    logits = np.log(np.clip(values, LEAST, None))
    return logits if exclusive else logits - np.log(np.clip(1 - values, LEAST_REST, None))
