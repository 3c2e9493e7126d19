"""What is known of a row without its text: the record of the traffic log and of the reference."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.core.errors import ArtifactError

#: Numbers of a sketch.
SKETCH: Final = 16
#: File of the reference in a version's run.
REFERENCE: Final = "drift/reference.npz"
SCHEMA: Final = 1
#: One row. `time`: seconds since the epoch, 0 in a reference. `characters`: of all parts of the input. `pieces` and
#: `unknown`: pieces that the encoder reads, and how many of them are unknown. `label`: index of the predicted class, -1
#: without one. `score`: see `SCORES`; NaN without one. `sketch`: a random projection of the features of the head.
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
#: Kind of a task -> what `score` is.
SCORES: Final = {
    "classification": "confidence",
    "pair": "confidence",
    "choice": "confidence",
    "multilabel": "highest probability",
    "similarity": "predicted value",
    "regression": "predicted value",
    "tagging": "share of words with a tag",
    "questions": "margin of the answer",
}
Rows = NDArray[np.void]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Measured:
    """N rows of one model. `kind`: of the task; empty for documents of a corpus."""

    kind: str
    labels: tuple[str, ...]
    rows: Rows
    texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, indices: Ints) -> Measured:
        """The rows with these indices."""
        texts = tuple(self.texts[index] for index in indices) if self.texts else ()
        return Measured(self.kind, self.labels, self.rows[indices], texts)

    def spread(self, most: int) -> Measured:
        """At most `most` rows, evenly spaced."""
        return self if len(self) <= most else self.take(spaced(len(self), most))


@dataclass(frozen=True)
class Reference:
    """The rows that a model's traffic is compared with.

    Attributes:
        measured: rows of train and dev.
        unseen: (N,) whether the model was not trained on the row's split: rows of dev.
    """

    measured: Measured
    unseen: NDArray[np.bool_]

    def to_bytes(self) -> bytes:
        """Content of a file."""
        meta = {"schema": SCHEMA, "kind": self.measured.kind, "labels": self.measured.labels}
        with io.BytesIO() as file:
            np.savez_compressed(
                file,
                rows=self.measured.rows,
                unseen=self.unseen,
                meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
            )
            return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, *, what: str) -> Reference:
        """Read what `to_bytes` has written."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                meta: dict[str, Any] = json.loads(stored["meta"].tobytes())
                if meta["schema"] != SCHEMA or stored["rows"].dtype != ROW:
                    raise ValueError("another version")
                measured = Measured(meta["kind"], tuple(meta["labels"]), stored["rows"])
                return cls(measured, stored["unseen"])
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise ArtifactError(
                f"{what}: its reference for drift cannot be read ({error}); it is measured again"
            ) from error


def spaced(count: int, most: int) -> Ints:
    """At most `most` indices of `count` rows, evenly spaced."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def describe(kind: str, answer: NDArray[np.float32], labels: Sequence[str]) -> tuple[int, float]:
    """Predicted class and score of an answer (`components.data.tasks.data.Answer`)."""
    match kind:
        case "classification" | "pair" | "choice" | "multilabel":
            return int(answer.argmax()), float(answer.max())
        case "similarity" | "regression":
            return -1, float(answer[0])
        case "tagging":
            outside = labels.index("O") if "O" in labels else -1
            return -1, float(np.mean(answer != outside)) if len(answer) else 0.0
        case "questions":
            # The scores of an answer and of no answer.
            return int(answer[0] != answer[1]), float(np.clip(answer[2] - answer[3], -1e3, 1e3))
        case _:
            return -1, float("nan")


def class_names(kind: str, labels: Sequence[str]) -> tuple[str, ...]:
    """Names of the classes that `describe` returns the index of; empty if they have none or their number differs."""
    match kind:
        case "classification" | "pair" | "multilabel":
            return tuple(labels)
        case "questions":
            return ("no answer", "answer")
        case _:
            return ()
