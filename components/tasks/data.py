"""Labelled rows of a task: inputs, targets, answers and splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

#: The parts of one input: (text,), (first, second), the words of a sentence, (question, context), (prompt, choice ...).
Fields = tuple[str, ...]
#: What is right of a row, by kind:  classification, pair, choice [number of the label]   multilabel the numbers of its
#: labels   similarity [value]   tagging a tag number a word   questions [start, end] of every reference answer, in
#: characters of the context, end exclusive; none where there is no answer.
Target = NDArray[np.float64]
#: What a model says of a row, by kind:  classification, pair, choice the probabilities of the labels (choices), which
#: sum to 1   multilabel those of every label by itself   similarity [value]   tagging a tag number a word   questions
#: [start, end, score, score of no answer].
Answer = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Labelled rows in their order.

    Attributes:
        fields: N inputs.
        targets: N vectors, ragged.
        slices: N names of the slice that a row is scored with, or None where there is none.
        ids: N names of the rows in their source.
        lines: N places in the file that the rows came from, counted from 1, for messages; empty once written.
    """

    fields: list[Fields]
    targets: list[Target]
    slices: list[str | None]
    ids: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def labels(self) -> Labels:
        """(N,) label numbers, of kinds whose targets are one number."""
        return np.fromiter((target[0] for target in self.targets), dtype=np.int64, count=len(self))

    @property
    def texts(self) -> list[str]:
        """N texts, the first part of every input."""
        return [parts[0] for parts in self.fields]

    def take(self, rows: Sequence[int] | NDArray[np.integer]) -> Split:
        """The named rows, in the order given."""
        return Split(
            [self.fields[row] for row in rows],
            [self.targets[row] for row in rows],
            [self.slices[row] for row in rows],
            [self.ids[row] for row in rows] if self.ids else [],
            [self.lines[row] for row in rows] if self.lines else [],
        )


@dataclass(frozen=True)
class Examples:
    """A task's data, read and checked.

    Attributes:
        labels: names of the labels; a label's number is its place here (sorted by name). Empty where targets are none.
        counts: what was dropped or noticed on the way.
    """

    labels: list[str]
    train: Split
    dev: Split
    test: Split
    counts: dict[str, int] = field(default_factory=dict)
