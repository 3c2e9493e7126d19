"""Choice of a hyper-parameter: on dev, or by cross-validation within the rows of a label budget
(`data.tasks.<name>.selection`), for systems that are fitted in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from components.scoring import Scoring
from components.tasks.data import Answer, Fields, Split
from components.tasks.results import OUT_OF_FOLD

#: Training rows from which one fold alone chooses: it has enough rows to tell the candidates apart.
MANY_ROWS: Final = 2000


class Fitted(Protocol):
    """A fitted system."""

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """The answers to N inputs; the answer to a row does not depend on the others."""


@dataclass(frozen=True)
class Candidate:
    """A system with one setting of its hyper-parameter.

    Attributes:
        fit: fits it.
        details: entries of the run's record.
    """

    fit: Callable[[], Fitted]
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Fitted, details: Mapping[str, Any] = MappingProxyType({})) -> Candidate:
        """A candidate that is fitted already."""
        return cls(lambda: model, details)

    @cached_property
    def model(self) -> Fitted:
        """The fitted system."""
        return self.fit()


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


#: Training rows -> the candidates of a system's hyper-parameter, in a fixed order; at a tie, the first is chosen.
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
    that were fitted on the other folds. At a tie the first candidate is chosen. Of more than MANY_ROWS rows, the first
    fold alone chooses, and only the chosen candidate is fitted for the others.
    """
    name, judged = data.judged
    found = system(data.training(data.train))
    if data.folds is None:
        pooled = {index: candidate.model.answers(judged.fields) for index, candidate in enumerate(found)}
    else:
        left: Sequence[int] = range(len(found))
        if len(left) > 1 and len(data.train) > MANY_ROWS:
            first = np.flatnonzero(data.folds == data.folds.min())
            tried = out_of_fold(system, data, data.folds, candidates=left, only=int(data.folds.min()))
            left = [_best(data, {index: [answers[row] for row in first] for index, answers in tried.items()}, first)]
        pooled = out_of_fold(system, data, data.folds, candidates=left)
    best = _best(data, pooled)
    answers = {name: pooled[best], "test": found[best].model.answers(data.test.fields)}
    scores = data.scoring.score(judged.fields, judged.targets, pooled[best])
    return Predictions(answers, scores, dict(found[best].details), found[best].model)


def _best(data: Data, pooled: Mapping[int, list[Answer]], rows: NDArray[np.int64] | None = None) -> int:
    """The candidate with the best primary metric on the judged rows, or on some of them."""
    judged = data.judged[1] if rows is None else data.judged[1].take(rows)

    def score(candidate: int) -> float:
        return data.scoring.score(judged.fields, judged.targets, pooled[candidate])[data.scoring.main]

    # `max` returns the first at a tie.
    return max(pooled, key=score)


def out_of_fold(
    system: System,
    data: Data,
    folds: NDArray[np.int64],
    *,
    candidates: Sequence[int],
    only: int | None = None,
) -> dict[int, list[Answer]]:
    """Number of a candidate -> the answers to all training rows, each by the model that was fitted without the row's
    fold; with `only`, to the rows of that fold."""
    pooled: dict[int, list[Answer]] = {
        candidate: [np.zeros(0, dtype=np.float32)] * len(data.train) for candidate in candidates
    }
    for fold in np.unique(folds) if only is None else [only]:
        inside = np.flatnonzero(folds == fold)
        found = system(data.training(data.train.take(np.flatnonzero(folds != fold))))
        held = [data.train.fields[row] for row in inside]
        for candidate, answers in pooled.items():
            for row, answer in zip(inside, found[candidate].model.answers(held), strict=True):
                answers[row] = answer
    return pooled
