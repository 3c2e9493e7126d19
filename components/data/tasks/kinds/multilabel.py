"""Multi-label classification: one text, any number of labels.

Targets are the indices of a row's labels (possibly none), answers (L,) independent probabilities; labels with a
probability of at least one half are predicted.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.core.errors import DataError
from components.data.formats.tables import as_text
from components.data.scoring.base import NO_LABEL, Fields, Floats, Inputs, Judged, Labelled, Vector, Vectors
from components.data.tasks.data import Answer, Examples, one_hot
from components.data.tasks.kinds import Kind
from components.data.tasks.reading.records import (
    Origin,
    Record,
    are_vectors,
    filled_all,
    flag_of,
    label_of,
    label_text,
    labels_in,
    positions_in,
    read_labelled,
    split_labels,
)
from components.data.tasks.reading.splits import Row, Rows, examples_of, unseen_labels, unusable
from components.data.tasks.task_io import TEXT_EXAMPLES, probabilities, texts_io
from components.settings.tasks import TaskSource

#: Minimum probability of a predicted label.
THRESHOLD = 0.5


def read_multilabel(name: str, source: TaskSource) -> Examples:
    """Columns `text` and `label` (a list, a vector of 0 and 1, or a text with `label_separator`), or `labels`, one
    column of 0 and 1 each.

    A target holds the indices of the labels, ascending; empty for a text without labels.

    Raises:
        DataError: as `classification.labelled`; a column of `labels` holds other values than 0 and 1; no row of
            train has a label.
    """
    rows: Rows = {}
    counts: Counter[str] = Counter()
    columns = source.labels if source.labels is not None else [source.label]
    records = list(read_labelled(name, source, [source.text, *columns], counts, texts=1))
    vectors = source.labels is None and are_vectors(record.values[1] for _, record in records)
    for split, record in records:
        fields = filled_all(record, (source.text,), ("text",))
        names = positions_in(record.values[1]) if vectors else None
        target = sorted(set(_labels(record, source) if names is None else names))
        rows.setdefault(split, []).append(Row(fields, tuple(target), record.origin))
    seen = {label for row in rows.get("train", []) for label in row.target}
    if not seen:
        raise unusable(name, source, "label", "no row has a label")
    labels = sorted(seen | unseen_labels(rows, source, seen, lambda row: row.target, counts))
    number = {label: index for index, label in enumerate(labels)}
    return examples_of(
        name, source, rows, labels=labels, target=lambda row: [number[label] for label in row.target], counts=counts
    )


def _labels(record: Record, source: TaskSource) -> list[str]:
    values = record.values[1:]
    if source.labels is None:
        return _named(values[0], source, record.origin)
    result: list[str] = []
    for column, value in zip(source.labels, values, strict=True):
        flag = flag_of(value)
        if flag is None:
            raise DataError(f"column {column!r} holds {value!r}; a column of labels holds 0 or 1", where=record.origin)
        if flag:
            result.append(column)
    return result


def _named(value: Any, source: TaskSource, origin: Origin) -> list[str]:
    if (labels := labels_in(value)) is not None:
        return [label_of(label, source.label, origin) for label in labels]
    parts = split_labels(as_text(value, origin) or "", source.label_separator)
    return [label for part in parts if (label := label_text(part))]


def format_labels(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    """The labels whose probability reaches the threshold."""
    given = [labels[int(index)] for index in np.flatnonzero(answer >= THRESHOLD)]
    return {"prediction": ",".join(given), "labels": given, "probabilities": probabilities(answer, labels)}


@dataclass(frozen=True)
class Multilabel(Labelled):
    """K = 3 L + 2 sums: true positives, predictions and targets of each label; rows with exactly the right labels,
    rows.
    """

    labels: Sequence[str]

    names = ("micro_f1", "macro_f1", "subset_accuracy")
    constant_name, score_name, shares = "most frequent labels", "highest probability", "independent"

    @property
    def width(self) -> int:
        return 3 * len(self.labels) + 2

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        truths = one_hot(targets, labels=len(self.labels)) > 0
        guesses = np.asarray(answers).reshape(truths.shape) >= THRESHOLD
        same = (truths == guesses).all(1)[:, None]
        return sparse.csr_array(
            np.concatenate([truths & guesses, guesses, truths, same, np.ones_like(same)], axis=1).astype(np.float64)
        )

    def scores(self, sums: Floats) -> dict[str, Floats]:
        """Subset accuracy is the share of rows with exactly the right labels."""
        metrics = self.pooled(sums) | {"subset_accuracy": sums[..., -2] / sums[..., -1]}
        return {name: metrics[name] for name in self.names}

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        """The relative frequencies of the labels; the most frequent one is raised to the threshold if necessary."""
        shares = one_hot(targets, labels=len(self.labels)).mean(0).astype(np.float32)
        shares[shares.argmax()] = max(shares.max(), THRESHOLD)
        return [shares] * len(targets)

    def in_words(self, fields: Fields, target: Vector) -> str:
        return ", ".join(self.labels[int(index)] for index in target) or NO_LABEL

    def judged(self, fields: Fields, target: Vector, answer: Vector) -> Judged:
        has, chosen = np.isin(np.arange(len(self.labels)), target), answer >= THRESHOLD
        if not (wrong := has != chosen).any():
            return None
        return self.compared(fields, np.flatnonzero(has), np.flatnonzero(chosen), np.abs(answer - has)[wrong].max())


KIND = Kind(
    read=read_multilabel,
    io=texts_io(TEXT_EXAMPLES, {"prediction": "text"}, {"labels": "texts", "probabilities": "shares"}, format_labels),
    scoring=Multilabel,
)
