"""Choice of a hyper-parameter: on dev, or by cross-validation within the rows of a label budget
(`data.tasks.<name>.selection`), for systems that are fitted in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from components.scoring import Scoring
from components.tasks.data import Answer, Fields, Split
from components.tasks.results import OUT_OF_FOLD


class Fitted(Protocol):
    """A fitted system."""

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """The answers to N inputs; the answer to a row does not depend on the others."""


@dataclass(frozen=True)
class Candidate:
    """A system that was fitted with one setting of its hyper-parameter.

    Attributes:
        model: the fitted baseline.
        details: entries of the run's record.
    """

    model: Fitted
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """What a system is fitted on.

    Attributes:
        rows: labelled rows.
        inputs: inputs of the whole train split, without labels.
        labels: names of the labels.
        scoring: metrics of the task.
        held_out: labelled rows for a decision threshold; the training rows themselves if the label budget has no
            others.
    """

    rows: Split
    inputs: Sequence[Fields]
    labels: Sequence[str]
    scoring: Scoring
    held_out: Split


#: Fits a system with every candidate of its hyper-parameter, in a fixed order; at a tie, the first is chosen.
System = Callable[[Training], Sequence[Candidate]]


@dataclass(frozen=True)
class Data:
    """The training rows of one label budget and seed, and the rows that are predicted.

    Attributes:
        train: training rows of the run.
        dev, test: the rows that are predicted.
        inputs: inputs of the whole train split, without labels.
        labels: names of the labels.
        scoring: metrics of the task.
        folds: (N,) fold of each training row, by which hyper-parameters are chosen; None: they are chosen on dev.
    """

    train: Split
    dev: Split
    test: Split
    inputs: Sequence[Fields]
    labels: Sequence[str]
    scoring: Scoring
    folds: NDArray[np.int64] | None = None

    @property
    def judged(self) -> tuple[str, Split]:
        """The name in results and the rows of what hyper-parameters are chosen on."""
        return ("dev", self.dev) if self.folds is None else (OUT_OF_FOLD, self.train)

    def training(self, rows: Split) -> Training:
        """The input of a system that is fitted on some of the training rows."""
        return Training(rows, self.inputs, self.labels, self.scoring, self.dev if self.folds is None else rows)


@dataclass(frozen=True)
class Predictions:
    """Result of a system.

    Attributes:
        answers: split -> one answer per row: `test`, and `dev` or, with cross-validation, OUT_OF_FOLD.
        scores: all metrics of the chosen candidate on `Data.judged`.
        details: entries of the run's record.
        model: the chosen candidate, fitted on all training rows.
    """

    answers: dict[str, list[Answer]]
    scores: dict[str, float]
    details: dict[str, Any]
    model: Fitted


def predict(system: System, data: Data) -> Predictions:
    """Choose the hyper-parameter of a system, fit it on all training rows, and predict.

    It is chosen by the primary metric on dev or, with folds, of the pooled answers to the rows of each fold by models
    that were fitted on the other folds. At a tie the first candidate is chosen.
    """
    name, judged = data.judged
    found = system(data.training(data.train))
    if data.folds is None:
        pooled = [candidate.model.answers(judged.fields) for candidate in found]
    else:
        pooled = out_of_fold(system, data, data.folds, candidates=len(found))
    scores = [data.scoring.score(judged.fields, judged.targets, answers) for answers in pooled]
    # `max` returns the first at a tie.
    best = max(range(len(found)), key=lambda index: scores[index][data.scoring.main])
    answers = {name: pooled[best], "test": found[best].model.answers(data.test.fields)}
    return Predictions(answers, scores[best], dict(found[best].details), found[best].model)


def out_of_fold(system: System, data: Data, folds: NDArray[np.int64], *, candidates: int) -> list[list[Answer]]:
    """For each candidate the answers to all training rows, each by the model that was fitted without the row's fold."""
    pooled: list[list[Answer]] = [[np.zeros(0, dtype=np.float32)] * len(data.train) for _ in range(candidates)]
    for fold in np.unique(folds):
        inside = np.flatnonzero(folds == fold)
        found = system(data.training(data.train.take(np.flatnonzero(folds != fold))))
        held = [data.train.fields[row] for row in inside]
        for answers, candidate in zip(pooled, found, strict=True):
            for row, answer in zip(inside, candidate.model.answers(held), strict=True):
                answers[row] = answer
    return pooled
