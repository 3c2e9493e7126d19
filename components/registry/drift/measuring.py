"""Measures the rows that a classifier predicts, next to the prediction, and the rows that they are compared with.

The sketch of a row is a fixed random projection of the features that the head of a model reads: of an encoder
(normalised if the head normalises them, averaged over the row's sequences and units), or TF-IDF weights. It needs no
further pass through the encoder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from components.core.errors import ArtifactError
from components.data.tasks.data import Answer, Fields
from components.data.tasks.examples import read_split
from components.learners.prediction import ROWS, Classifier
from components.registry.drift.measurements import (
    REFERENCE,
    ROW,
    SKETCH,
    Measured,
    Reference,
    class_names,
    describe,
    spaced,
)

if TYPE_CHECKING:
    from components.registry.tracking import Registry, Version

SEED: Final = 23
#: Sketches are stored as float16.
LARGEST = 6e4
#: Maximum number of rows of train, and of rows that the model has not learned from, evenly spaced. Only lengths are
#: compared with rows of train.
TRAIN_ROWS, UNSEEN_ROWS = 1000, 2000


@runtime_checkable
class MeasuredClassifier(Classifier, Protocol):
    """A classifier that shows more of a row than its answer."""

    def answer_measured(
        self, rows: Sequence[Fields], projection: Callable[[int], NDArray[np.float32]]
    ) -> tuple[list[Answer], NDArray[np.int64], NDArray[np.float32]]:
        """(N inputs, number of features F -> (F, S) random numbers with variance 1 / F) -> the answers of `answer`;
        (N, 2) pieces and unknown pieces; (N, S) projections of features of the order of 1."""


class ObservedClassifier:
    """A classifier that passes the measurements of every batch on. It changes no answer. `inner`: the classifier. One
    that is not a `MeasuredClassifier` has no pieces and no sketches."""

    def __init__(self, inner: Classifier, observe: Callable[[Sequence[Fields], Measured], None]) -> None:
        self._inner, self._observe = inner, observe

    @property
    def kind(self) -> str:
        """The kind of the task."""
        return self._inner.kind

    @property
    def labels(self) -> Sequence[str]:
        """Names of the labels, by index."""
        return self._inner.labels

    def answer(self, rows: Sequence[Fields], batch_size: int = ROWS) -> list[Answer]:
        """N inputs -> N answers."""
        answers: list[Answer] = []
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            answered, measured = measure(self._inner, part, now=time.time())
            self._observe(part, measured)
            answers += answered
        return answers


def measure(classifier: Classifier, rows: Sequence[Fields], *, now: float = 0.0) -> tuple[list[Answer], Measured]:
    """The answers to N rows, and their measurements."""
    records = np.zeros(len(rows), dtype=ROW)
    if isinstance(classifier, MeasuredClassifier):
        answers, counts, sketches = classifier.answer_measured(rows, projection)
        records["pieces"], records["unknown"] = counts[:, 0], counts[:, 1]
        records["sketch"] = np.clip(sketches, -LARGEST, LARGEST)
    else:
        answers = list(classifier.answer(rows))
        records["sketch"] = np.nan
    kind, labels = classifier.kind, list(classifier.labels)
    records["time"] = now
    records["characters"] = [sum(map(len, parts)) for parts in rows]
    described = np.array([describe(kind, answer, labels) for answer in answers], dtype=np.float64).reshape(-1, 2)
    records["label"], records["score"] = described[:, 0], described[:, 1]
    return answers, Measured(kind, class_names(kind, labels), records)


@lru_cache(maxsize=8)
def projection(features: int) -> NDArray[np.float32]:
    """(F, SKETCH), normal with variance 1 / F, so that sketches of normalised features are of the order of 1."""
    values = np.random.default_rng([SEED, features]).standard_normal((features, SKETCH)) / np.sqrt(features)
    return values.astype(np.float32)


def measure_reference(classifier: Classifier, *, examples: Path) -> Reference:
    """Measure rows of train and of dev, or of test if there is no dev."""
    unseen = read_split(examples, "dev")
    unseen = unseen if len(unseen) else read_split(examples, "test")
    learned = read_split(examples, "train")
    chosen = [part.take(spaced(len(part), most)) for part, most in ((learned, TRAIN_ROWS), (unseen, UNSEEN_ROWS))]
    parts = [measure(classifier, part.fields)[1] for part in chosen]
    is_unseen = np.repeat([False, True], [len(part) for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    return Reference(Measured(parts[0].kind, parts[0].labels, rows), is_unseen)


def record_reference(registry: Registry, version: Version, classifier: Classifier, *, examples: Path) -> Reference:
    """Measure the reference of a version and store it with the version's run."""
    reference = measure_reference(classifier, examples=examples)
    registry.attach(version, REFERENCE, reference.to_bytes())
    return reference


def find_reference(registry: Registry, version: Version) -> Reference | None:
    """The recorded reference of a version; None if there is none or an unreadable one, which is measured again."""
    try:
        content = registry.attached(version, REFERENCE)
        return None if content is None else Reference.from_bytes(content, what=version.label)
    except ArtifactError:
        return None
