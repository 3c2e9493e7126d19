"""Multi-label classification: one text, any number of labels.

Targets are the indices of a row's labels (possibly none), answers (L,) independent probabilities; labels with a
probability of at least one half are predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.data.scoring.base import NO_LABEL, Fields, Floats, Inputs, Judged, Labelled, Vector, Vectors
from components.data.tasks.data import Answer, Examples, one_hot
from components.data.tasks.kinds import Kind
from components.data.tasks.reading.records import are_vectors, filled_all, row_labels
from components.data.tasks.reading.splits import Rows
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
    rows = Rows(name, source)
    columns = source.labels if source.labels is not None else [source.label]
    records = list(rows.records([source.text, *columns]))
    vectors = source.labels is None and are_vectors(record.values[1] for _, record in records)
    for split, record in records:
        fields = filled_all(record, (source.text,), ("text",))
        target = row_labels(record.values[1:], source, record.origin, vectors=vectors)
        rows.add(split, fields, target, record.origin)
    seen = {label for row in rows.get("train", []) for label in row.target}
    if not seen:
        raise rows.unusable("label", "no row has a label")
    labels = sorted(seen | rows.unseen(seen, lambda row: row.target))
    return rows.examples(labels=labels)


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
