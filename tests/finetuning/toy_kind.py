"""A kind of task that is not part of the code base: whether a statement is true, a probability. Torch-free half."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.core.errors import DataError
from components.data.scoring.base import Floats, Inputs, Scoring, Vectors
from components.data.tasks.data import Answer, Examples, Fields
from components.data.tasks.kinds import Kind
from components.data.tasks.reading.records import filled, label_of
from components.data.tasks.reading.splits import Rows
from components.data.tasks.task_io import TEXT_EXAMPLES, TaskIO, parse_texts
from components.settings.tasks import TaskSource


class Truth(Scoring):
    """Targets are [0 or 1], answers [probability]. The K = 2 columns: correct rows, rows."""

    names = ("accuracy",)
    constant_name = "share of true statements"

    @property
    def width(self) -> int:
        return 2

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        correct = [(answer[0] >= 0.5) == target[0] for target, answer in zip(targets, answers, strict=True)]
        return sparse.csr_array(np.stack([np.asarray(correct, dtype=np.float64), np.ones(len(correct))], axis=1))

    def scores(self, sums: Floats) -> dict[str, Floats]:
        return {"accuracy": sums[..., 0] / sums[..., 1]}

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        return [np.asarray([np.mean([target[0] for target in targets])], dtype=np.float32)] * len(targets)


def read(name: str, source: TaskSource) -> Examples:
    rows = Rows(name, source)
    for split, record in rows.records([source.text, source.label]):
        text = filled(record.values[0], "the text", source.text, record.origin)
        label = label_of(record.values[1], source.label, record.origin)
        if label not in ("true", "false"):
            raise DataError(f"{record.origin}: {label!r} is neither true nor false")
        rows.add(split, (text,), label == "true", record.origin)
    return rows.examples(labels=[], target=lambda row: (row.target,))


def show(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    return {"prediction": "true" if answer[0] >= 0.5 else "false", "probability": float(answer[0])}


KIND = Kind(
    read=read,
    io=TaskIO(
        inputs={"text": "text"},
        columns={"prediction": "text", "probability": "number"},
        outputs={"probability": "number"},
        parse=parse_texts("text"),
        format=show,
        examples=TEXT_EXAMPLES,
    ),
    scoring=lambda *_: Truth(),
)
