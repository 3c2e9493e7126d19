"""Abstention: a model does not decide where its confidence is too low for a chosen share of errors, or where the text
is unlike its training texts (`domain`).

The threshold of a share of errors e is the lowest confidence t with (1 + wrong(t)) / answered(t) <= e, where the counts
are of held-out rows (out of fold, or of dev) with a confidence of at least t. For many rows to predict this is the rule
of Jin and Candès (2023, "Selection by prediction with conformal p-values"): the expected share of wrong answers among
those that are given is at most e, if the rows are like the held-out ones. Fewer than 1 / e held-out rows have no
threshold.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from components.core.artifacts import read_manifest
from components.core.errors import ConfigError
from components.data.scoring.base import Vectors, numbers
from components.data.tasks.data import Answer, Fields, Split
from components.data.tasks.kinds import find_kind
from components.data.tasks.members import save_members
from components.data.tasks.task_io import TaskIO, Value
from components.learners.domain import Domain
from components.learners.prediction import Classifier, WrappedClassifier, io_of

#: Targets of rows, and answers of a model that has not learned from them.
HeldOut = tuple[Vectors, Vectors]
#: Fact of a classifier's manifest: [[threshold, share of errors], ...], thresholds ascending, shares descending.
FACT: Final = "abstention"
#: Columns of predictions: whether the text is out of the domain, and whether it is, or the confidence is below the
#: threshold.
OUTSIDE, COLUMN = "out_of_domain", "abstained"
#: A threshold is stored if its share of errors is below this factor times the share of the last stored threshold.
STEP: Final = 0.98


def save_classifier(
    directory: Path,
    members: Sequence[Callable[[Path], None]],
    *,
    kind: str,
    rows: Split,
    held_out: Sequence[HeldOut],
    facts: Mapping[str, Any],
    average: Mapping[str, float] | None = None,
) -> None:
    """Write a classifier (`save_members`); if predictions of the kind have a confidence, with what it abstains by: the
    thresholds from held-out rows (as of `thresholds_of`), and the domain of the training rows."""
    able = "confidence" in find_kind(kind).io.columns
    save_members(
        directory,
        members,
        facts={**facts, **({FACT: thresholds_of(held_out)} if able else {})},
        beside=Domain.fit(rows.fields, rows.units).write if able else lambda folder: None,
        average=average,
    )


def thresholds_of(runs: Sequence[HeldOut]) -> list[tuple[float, float]]:
    """The thresholds at which the share of errors falls, and these shares.

    Args:
        runs: for each seed the targets (N,) of held-out rows and the probabilities (N, C). Seeds may have the same
            rows, so that a row counts 1 / seeds.
    """
    confidence = np.concatenate([[answer.max() for answer in answers] for _, answers in runs])
    right = [[answer.argmax() for answer in answers] == numbers(targets) for targets, answers in runs]
    order = np.argsort(-confidence, kind="stable")
    wrong = np.cumsum(~np.concatenate(right)[order])
    shares = (len(runs) + wrong) / np.arange(1, len(order) + 1)
    result: list[tuple[float, float]] = []
    # Of equal confidences, the last one has counted all.
    values, first = np.unique(confidence[order][::-1], return_index=True)
    for value, share in zip(values.tolist(), shares[::-1][first].tolist(), strict=True):
        if share < (STEP * result[-1][1] if result else 1):
            result.append((value, share))
    return result


class AbstainingClassifier(WrappedClassifier):
    """A classifier with the columns `out_of_domain` and `abstained` in its predictions; its answers are the same."""

    def __init__(self, inner: Classifier, threshold: float, domain: Domain | None = None) -> None:
        super().__init__(inner)
        self.threshold, self.domain = threshold, domain

    def __getattr__(self, name: str) -> Any:
        """What some classifiers have besides, such as `answer_measured`."""
        if name == "inner":  # before it is set
            raise AttributeError(name)
        return getattr(self.inner, name)

    @cached_property
    def io(self) -> TaskIO:
        """The input and output of the inner classifier, with the columns."""
        io = io_of(self.inner)
        columns: dict[str, Value] = {OUTSIDE: "boolean", COLUMN: "boolean"}
        outputs = {**io.outputs, **columns}
        return replace(io, columns={**io.columns, **columns}, outputs=outputs, format=self._formatted)

    def _formatted(self, fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
        row = io_of(self.inner).format(fields, answer, labels)
        outside = self.domain is not None and self.domain.excludes(fields)
        return row | {OUTSIDE: outside, COLUMN: outside or row["confidence"] < self.threshold}


def abstaining(inner: Classifier, directory: Path, threshold: float) -> AbstainingClassifier:
    """A classifier that abstains below a threshold, and outside of the domain that its directory has.

    Raises:
        ArtifactError: the file of the domain is damaged.
    """
    return AbstainingClassifier(inner, threshold, Domain.read(directory))


def threshold_of(directory: Path, error: float, *, what: str) -> float:
    """The lowest threshold of a classifier with at most this share of errors; infinite, with a message about the model
    `what`, if there is none.
    Raises ConfigError: the share is not between 0 and 1, or the model has no thresholds."""
    if not 0 < error < 1:
        raise ConfigError(f"share of errors {error:g}: give a number above 0 and below 1, such as 0.05")
    facts = read_manifest(directory).facts
    if FACT not in facts:
        raise ConfigError(
            f"{what}: has no thresholds for an error of {error:g}: its task has no confidence, or it was trained by an "
            "earlier version, and training it again adds them"
        )
    if enough := [value for value, share in facts[FACT] if share <= error]:
        return float(min(enough))
    least = math.ceil(1000 * min((share for _, share in facts[FACT]), default=1.0)) / 1000
    print(
        f"{what}: every row abstains, because its held-out rows support no error below {least:g}; more labels lower it",
        file=sys.stderr,
        flush=True,
    )
    return math.inf


def share_at(facts: Mapping[str, Any], confidence: float) -> float | None:
    """The share of errors at the highest threshold that a confidence reaches; None if it reaches none."""
    return min((share for value, share in facts.get(FACT, []) if value <= confidence), default=None)
