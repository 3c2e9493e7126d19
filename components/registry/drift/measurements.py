"""What is known of a row without its text, for the traffic log and the reference. Its sketch is a fixed random
projection of the features that the head of the model reads, or of TF-IDF weights."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from components.data.tasks.data import Answer, Fields, spaced
from components.data.tasks.examples import read_split
from components.data.tasks.kinds import scoring_for
from components.learners.prediction import ROWS, Classifier, WrappedClassifier

if TYPE_CHECKING:
    from components.registry.tracking import Registry, Version

#: Numbers of a sketch.
SKETCH: Final = 16
#: Document of the reference of a version.
REFERENCE: Final = "drift"
SCHEMA: Final = 1
#: One row. `time`: seconds since the epoch, 0 in a reference. `characters`: of all parts of the input. `pieces` and
#: `unknown`: pieces that the encoder reads, and how many of them are unknown. `label`: index of the predicted class, -1
#: without one. `score`: see `Scoring.described`; NaN without one. `sketch`: a random projection of features.
ROW: Final = np.dtype(
    [
        ("time", "<f8"),
        ("characters", "<u4"),
        ("pieces", "<u4"),
        ("unknown", "<u4"),
        ("label", "<i4"),
        ("score", "<f4"),
        ("sketch", "<f2", (SKETCH,)),
    ]
)
Rows = NDArray[np.void]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Measured:
    """N rows of one model.

    Attributes:
        kind: of the task; empty for documents of a corpus.
        unseen: of a reference, rows of train and dev: (N,) whether the model was not trained on the row's split.
    """

    kind: str
    labels: tuple[str, ...]
    rows: Rows
    texts: tuple[str, ...] = ()
    unseen: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, indices: Ints) -> Measured:
        """The rows with these indices."""
        texts = tuple(self.texts[index] for index in indices) if self.texts else ()
        return replace(self, rows=self.rows[indices], texts=texts, unseen=None)

    def spread(self, most: int) -> Measured:
        """At most `most` rows, evenly spaced."""
        return self if len(self) <= most else self.take(spaced(len(self), most))


def packed(rows: Rows) -> str:
    """Records of type `ROW` in base64."""
    return base64.b64encode(rows.tobytes()).decode()


def unpacked(text: str) -> Rows:
    return np.frombuffer(base64.b64decode(text), dtype=ROW)


SEED: Final = 23
#: Sketches are stored as float16.
LARGEST = 6e4
#: Maximum number of rows of train, and of rows that the model has not learned from, evenly spaced. Only lengths are
#: compared with rows of train.
TRAIN_ROWS, UNSEEN_ROWS = 1000, 2000


class ObservedClassifier(WrappedClassifier):
    """The classifier `inner`, with the measurements of every batch passed on. It changes no answer. Without
    `answer_measured` there are no pieces and no sketches."""

    def __init__(self, inner: Classifier, observe: Callable[[Sequence[Fields], Measured], None]) -> None:
        super().__init__(inner)
        self._observe = observe

    def answer(self, rows: Sequence[Fields], batch_size: int = ROWS) -> list[Answer]:
        """N inputs -> N answers."""
        answers: list[Answer] = []
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            answered, measured = measure(self.inner, part, now=time.time())
            self._observe(part, measured)
            answers += answered
        return answers


def measure(classifier: Classifier, rows: Sequence[Fields], *, now: float = 0.0) -> tuple[list[Answer], Measured]:
    """The answers to N rows, and their measurements. A classifier may have `answer_measured(rows, projection)`: N
    inputs, number of features F -> (F, S) random numbers with variance 1 / F -> the answers; (N, 2) pieces and unknown
    pieces; (N, S) projections of features of the order of 1."""
    records = np.zeros(len(rows), dtype=ROW)
    if (answer_measured := getattr(classifier, "answer_measured", None)) is not None:
        answers, counts, sketches = answer_measured(rows, projection)
        records["pieces"], records["unknown"] = counts.T
        records["sketch"] = np.clip(sketches, -LARGEST, LARGEST)
    else:
        answers = list(classifier.answer(rows))
        records["sketch"] = np.nan
    scoring = scoring_for(classifier.kind, list(classifier.labels))
    records["time"] = now
    records["characters"] = [sum(map(len, parts)) for parts in rows]
    described = np.array([scoring.described(answer) for answer in answers], dtype=np.float64).reshape(-1, 2)
    records["label"], records["score"] = described.T
    return answers, Measured(classifier.kind, tuple(scoring.outcomes), records)


@lru_cache(maxsize=8)
def projection(features: int) -> NDArray[np.float32]:
    """(F, SKETCH), normal with variance 1 / F, so that sketches of normalised features are of the order of 1."""
    values = np.random.default_rng([SEED, features]).standard_normal((features, SKETCH)) / np.sqrt(features)
    return values.astype(np.float32)


def record_reference(registry: Registry, version: Version, classifier: Classifier, *, examples: Path) -> Measured:
    """Measure rows of train and of dev, or of test if there is no dev, and store them with the version's run."""
    dev = read_split(examples, "dev")
    splits = read_split(examples, "train"), dev if len(dev) else read_split(examples, "test")
    learned, unseen = (
        measure(classifier, part.take(spaced(len(part), most)).fields)[1]
        for part, most in zip(splits, (TRAIN_ROWS, UNSEEN_ROWS), strict=True)
    )
    is_unseen = np.repeat([False, True], [len(learned), len(unseen)])
    reference = replace(learned, rows=np.concatenate([learned.rows, unseen.rows]), unseen=is_unseen)
    content = {"kind": reference.kind, "labels": reference.labels, "rows": packed(reference.rows)}
    registry.write_document(version, REFERENCE, {"schema": SCHEMA, **content, "unseen": is_unseen.tolist()})
    return reference


def find_reference(registry: Registry, version: Version) -> Measured | None:
    """The recorded reference of a version; None if there is none or an unreadable one, which is measured again."""
    with suppress(ValueError, KeyError, TypeError):
        if (stored := registry.document(version, REFERENCE) or {})["schema"] == SCHEMA:
            unseen = np.array(stored["unseen"], dtype=np.bool_)
            return Measured(stored["kind"], tuple(stored["labels"]), unpacked(stored["rows"]), unseen=unseen)
    return None
