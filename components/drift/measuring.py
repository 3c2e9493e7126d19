"""Measures the rows that a classifier predicts, next to the prediction.

The sketch of a row is a fixed random projection of the features that the head reads (normalised if the head normalises
them), averaged over the row's sequences and units. It needs no further pass through the encoder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.drift.measurements import ROW, SKETCH, Measured, class_names, describe
from components.inference.prediction import Classifier
from components.models.base import Batch
from components.task_models.base import Encoded
from components.task_models.classifier import ROWS, TextClassifier
from components.task_models.heads import FixedNorm, mask
from components.task_models.model import TaskModel
from components.tasks.data import Answer, Fields
from components.tokenization.special import UNK

SEED: Final = 23
#: Sketches are stored as float16.
LARGEST = 6e4


class ObservedClassifier:
    """A classifier that passes the measurements of every batch on. Its answers are those of the classifier.

    Args:
        inner: the classifier. One that is not a `TextClassifier` has no pieces and no sketches.
        observe: called with the rows of each batch and their measurements.
    """

    def __init__(self, inner: Classifier, observe: Callable[[Sequence[Fields], Measured], None]) -> None:
        self._inner, self._observe = inner, observe

    @property
    def kind(self) -> str:
        """Kind of task."""
        return self._inner.kind

    @property
    def labels(self) -> Sequence[str]:
        """Names of the labels, by index."""
        return self._inner.labels

    def answer(self, rows: Sequence[Fields], batch_size: int = ROWS) -> list[Answer]:
        """N inputs -> N answers."""
        found: list[Answer] = []
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            answers, measured = measure(self._inner, part, now=time.time())
            self._observe(part, measured)
            found += answers
        return found


def measure(classifier: Classifier, rows: Sequence[Fields], *, now: float = 0.0) -> tuple[list[Answer], Measured]:
    """The answers to N rows, and their measurements.

    Args:
        classifier: the model.
        rows: N inputs.
        now: time of the rows, in seconds since the epoch.
    """
    records = np.zeros(len(rows), dtype=ROW)
    if isinstance(classifier, TextClassifier):
        encoded = classifier.encode(rows)
        both = classifier.answer_observed(encoded, sketches)
        answers = [answer for answer, _ in both]
        counts = np.array([_pieces(row) for row in encoded], dtype=np.int64).reshape(-1, 2)
        records["pieces"], records["unknown"] = counts[:, 0], counts[:, 1]
        records["sketch"] = np.clip([sketch for _, sketch in both], -LARGEST, LARGEST) if both else 0
    else:
        answers = list(classifier.answer(rows))
        records["sketch"] = np.nan
    kind, labels = classifier.kind, list(classifier.labels)
    records["time"] = now
    records["characters"] = [sum(map(len, parts)) for parts in rows]
    found = np.array([describe(kind, answer, labels) for answer in answers], dtype=np.float64).reshape(-1, 2)
    records["label"], records["score"] = found[:, 0], found[:, 1]
    return answers, Measured(kind, class_names(kind, labels), records)


def _pieces(row: Encoded) -> tuple[int, int]:
    """Pieces of a row, and unknown ones."""
    return sum(map(len, row.pieces)), sum(int((pieces == UNK).sum()) for pieces in row.pieces)


@lru_cache(maxsize=8)
def _projection(features: int, device: torch.device) -> Tensor:
    """(F, SKETCH), normal with variance 1 / F, so that sketches of normalised features are of the order of 1."""
    values = np.random.default_rng([SEED, features]).standard_normal((features, SKETCH)) / np.sqrt(features)
    return torch.from_numpy(values.astype(np.float32)).to(device)


def sketches(model: TaskModel, vectors: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
    """The sketches of the B rows of a batch, from the inputs of the head: (S, F), (B, F) or (S, U, F)."""
    norm = getattr(model.head, "norm", None)
    if model.of_units:
        lengths = batch["unit_lengths"]
        inside = mask(lengths, vectors.shape[1])[..., None]
        vectors = vectors.float().masked_fill(~inside, 0.0).sum(1) / lengths.clamp(min=1)[:, None]
    if isinstance(norm, FixedNorm):
        vectors = norm(vectors)
    with torch.autocast(vectors.device.type, enabled=False):
        found = vectors.float() @ _projection(vectors.shape[-1], vectors.device)
    rows = batch["rows"]
    count = int(rows[-1]) + 1
    if len(found) != count:
        total = found.new_zeros(count, SKETCH).index_add(0, rows, found)
        found = total / torch.bincount(rows, minlength=count)[:, None]
    return list(found.cpu().numpy())
