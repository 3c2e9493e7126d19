"""Choice of a hyper-parameter: on dev, or by cross-validation within the rows of a label budget
(`data.tasks.<name>.selection`), for systems that are fitted in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from components.core.clock import check_time
from components.data.formats.textkey import digest_of
from components.data.scoring import Scoring
from components.data.tasks.calibration import calibrated, labels_of
from components.data.tasks.choice import choose
from components.data.tasks.data import Answer, Fields, Split
from components.data.tasks.results import OUT_OF_FOLD

#: Training rows from which one fold alone chooses: it has enough rows to tell the candidates apart.
MANY_ROWS: Final = 2000


class Fitted(Protocol):
    """A fitted system."""

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """The answers to N inputs; the answer to a row does not depend on the others."""


@runtime_checkable
class Tempering(Protocol):
    """A fitted system whose probabilities can be calibrated."""

    def tempered(self, temperature: float) -> Fitted:
        """The system with its logits divided by a temperature."""


@dataclass(frozen=True)
class Candidate:
    """A system with one setting of its hyper-parameter."""

    fit: Callable[[], Fitted]
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Fitted, details: Mapping[str, Any] = MappingProxyType({})) -> Candidate:
        """A candidate that is fitted already."""
        return cls(lambda: model, details)

    @cached_property
    def model(self) -> Fitted:
        return self.fit()


@dataclass(frozen=True)
class Free:
    """Inputs of no row that the runs of a seed learn from or are judged on, of no copy and of no row of the same group.
    What is fitted on them is the same for all folds and budgets of the seed.

    Attributes:
        key: digest of the inputs, by which two are equal.
        fitted: folder of what another stage has fitted on them.
    """

    key: bytes
    fields: Sequence[Fields] = field(compare=False, repr=False)
    fitted: Path | None = field(default=None, compare=False)

    @classmethod
    def of(cls, inputs: Mapping[bytes, Fields], fitted: Path | None = None) -> Free:
        """The inputs with these digests, in the order of the digests."""
        order = sorted(inputs)
        return cls(hashlib.sha256(b"".join(order)).digest(), [inputs[key] for key in order], fitted)


class Shared:
    """What the folds and systems of a run compute once.

    Attributes:
        rows: all labelled rows of the run.
        inputs: all inputs, with labels or without.
    """

    def __init__(self, rows: Split, inputs: Sequence[Fields]) -> None:
        self.rows, self.inputs = rows, inputs
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` returned when this key came first."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


@dataclass(frozen=True)
class Training:
    """What a system is fitted on.

    Attributes:
        inputs: inputs without labels, of the train split and further ones.
        held_out: labelled rows for a decision threshold; the training rows themselves if the label budget has no
            others.
        free: inputs that no fold of the run is judged on.
        shared: of all folds of the run; a fold must not learn from what it does not have in `rows` and `inputs`.
    """

    rows: Split
    inputs: Sequence[Fields]
    labels: Sequence[str]
    scoring: Scoring
    held_out: Split
    free: Free
    shared: Shared


#: Training rows -> the candidates of a system's hyper-parameter, the simplest first.
System = Callable[[Training], Sequence[Candidate]]


@dataclass(frozen=True)
class Data:
    """The training rows of one label budget and seed, and the rows that are predicted.

    Attributes:
        whole: the train split, whose inputs are read without labels too.
        rows: (N,) indices of the run's training rows in `whole`.
        dev, test: the rows that are predicted.
        folds: (N,) fold of each training row, by which hyper-parameters are chosen; None: they are chosen on dev.
        further: inputs without labels beside the train split's inputs.
        largest: indices of the rows that the seed draws at any budget; None: those of the run.
        fitted: of `Free`.
    """

    whole: Split
    rows: NDArray[np.int64]
    dev: Split
    test: Split
    labels: Sequence[str]
    scoring: Scoring
    folds: NDArray[np.int64] | None = None
    further: Sequence[Fields] = ()
    largest: NDArray[np.int64] | None = None
    fitted: Path | None = None

    @cached_property
    def train(self) -> Split:
        return self.whole.take(self.rows)

    @property
    def judged(self) -> tuple[str, Split]:
        """The name in results and the rows of what hyper-parameters are chosen on."""
        return ("dev", self.dev) if self.folds is None else (OUT_OF_FOLD, self.train)

    @property
    def drawn(self) -> NDArray[np.int64]:
        """Indices of the rows that the seed draws at any budget."""
        return self.rows if self.largest is None else self.largest

    @cached_property
    def free(self) -> Free:
        belonging = self.whole.belonging(self.drawn)
        return Free.of({key: parts for parts, key in self._inputs if key not in belonging}, self.fitted)

    @cached_property
    def _shared(self) -> Shared:
        return Shared(self.train, [parts for parts, _ in self._inputs])

    def training(self, held: NDArray[np.integer] | None = None) -> Training:
        """The input of a system: all training rows and inputs, without everything that belongs to held-out rows
        (`Split.belonging`), which a model that predicts them must not have read."""
        left_out = self._left_out(held)
        rows = self.train.take(self.learned(held))
        inputs = [parts for parts, key in self._inputs if key not in left_out]
        held_out = self.dev if self.folds is None else rows
        return Training(rows, inputs, self.labels, self.scoring, held_out, self.free, self._shared)

    def learned(self, held: NDArray[np.integer] | None = None) -> NDArray[np.int64]:
        """Indices of the training rows of `training`."""
        left_out = self._left_out(held)
        return np.flatnonzero([key not in left_out for key in self.train.digests])

    def _left_out(self, held: NDArray[np.integer] | None) -> frozenset[bytes]:
        return frozenset() if held is None else self.whole.belonging(self.rows[held])

    @cached_property
    def _inputs(self) -> list[tuple[Fields, bytes]]:
        """All inputs without labels, with their digests; further ones that are in the train split are left out."""
        given = set(self.whole.digests)
        further = [(parts, key) for parts in self.further if (key := digest_of(parts)) not in given]
        return [*zip(self.whole.fields, self.whole.digests, strict=True), *further]


@dataclass(frozen=True)
class Predictions:
    """Result of a system.

    Attributes:
        answers: split -> one answer per row: `test`, and `dev` or, with cross-validation, OUT_OF_FOLD; the latter by
            the candidates that were chosen without the row's fold.
        model: the chosen candidate, fitted on all training rows.
    """

    answers: dict[str, list[Answer]]
    scores: dict[str, float]
    details: dict[str, Any]
    model: Fitted


def predict(system: System, data: Data) -> Predictions:
    """Choose the hyper-parameter of a system (`components.data.tasks.choice`), fit it on all training rows, and
    predict.

    It is chosen on dev or, with folds, by the pooled answers to the rows of each fold by models that were fitted
    without the fold. Of more than MANY_ROWS rows, the first fold alone chooses, and only the chosen candidate is fitted
    for the others. The same answers give the temperature of probabilities of labels.

    Raises:
        OutOfTimeError: the limit of time has passed (`components.core.clock`).
    """
    name, judged = data.judged
    result = system(data.training())
    if data.folds is None:
        pooled = [candidate.model.answers(judged.fields) for candidate in result]
        choice = choose(data.scoring, judged, pooled)
        answers, best = pooled[choice.index], choice.index
    else:
        left: Sequence[int] = range(len(result))
        if len(left) > 1 and len(data.train) > MANY_ROWS:
            first = np.flatnonzero(data.folds == data.folds.min())
            tried = out_of_fold(system, data, candidates=left, only=int(data.folds.min()))
            of_first = [[answers[row] for row in first] for answers in tried]
            left = [choose(data.scoring, judged.take(first), of_first).index]
        pooled = out_of_fold(system, data, candidates=left)
        choice = choose(data.scoring, judged, pooled, folds=data.folds)
        answers, best = choice.answers, left[choice.index]
    model, details = result[best].model, dict(result[best].details)
    if isinstance(model, Tempering) and labels_of(data.scoring):
        temperature, answers = calibrated(data.scoring, judged.targets, answers, folds=data.folds)
        model, details = model.tempered(temperature), details | {"temperature": temperature}
    scores = data.scoring.score(judged.fields, judged.targets, answers)
    return Predictions({name: answers, "test": model.answers(data.test.fields)}, scores, details, model)


def out_of_fold(
    system: System, data: Data, *, candidates: Sequence[int], only: int | None = None
) -> list[list[Answer]]:
    """Per candidate the answers to all training rows, or those of the fold `only`, by models without that fold."""
    assert data.folds is not None
    pooled: list[list[Answer]] = [[np.zeros(0, dtype=np.float32)] * len(data.train) for _ in candidates]
    for fold in np.unique(data.folds) if only is None else [only]:
        inside = np.flatnonzero(data.folds == fold)
        result = system(data.training(inside))
        held = [data.train.fields[row] for row in inside]
        for candidate, answers in zip(candidates, pooled, strict=True):
            check_time()
            for row, answer in zip(inside, result[candidate].model.answers(held), strict=True):
                answers[row] = answer
    return pooled
