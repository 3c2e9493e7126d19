"""What every downstream task offers, and the labelled texts that it works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from components.config import FinetuneSettings, TaskSource
from components.finetuning.heads import ClassificationHead
from components.models.base import LanguageModel
from components.tokenization import Tokenizer

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Labelled texts in their order.

    Attributes:
        texts: N texts.
        labels: (N,) label numbers.
        slices: N names of the slice that a row is scored with, or None where there is none.
        lines: N places in the file that the rows came from, counted from 1, for messages; empty once written.
    """

    texts: list[str]
    labels: Labels
    slices: list[str | None]
    lines: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int] | NDArray[np.integer]) -> Split:
        """The named rows, in the order given."""
        return Split(
            [self.texts[row] for row in rows],
            self.labels[np.asarray(rows, dtype=np.int64)],
            [self.slices[row] for row in rows],
            [self.lines[row] for row in rows] if self.lines else [],
        )


@dataclass(frozen=True)
class Examples:
    """A task's data, read and checked.

    Attributes:
        labels: names of the labels; a label's number is its place here (sorted by name).
        counts: what was dropped or noticed on the way.
    """

    labels: list[str]
    train: Split
    dev: Split
    test: Split
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """One line of the TASKS table.

    Attributes:
        read: (name, source) -> the task's data; raises DataError for what is wrong with it.
        encode: (texts, tokenizer, model, max_length) -> each text as piece ids with the model's special pieces.
        head: (settings, features, outputs) -> the layers on top of the encoder: (B, features) -> (B, outputs).
        metrics: names of the scores of `components.evaluation.metrics` that count here, the deciding one first.
    """

    kind: str
    read: Callable[[str, TaskSource], Examples]
    encode: Callable[[Sequence[str], Tokenizer, LanguageModel, int], list[NDArray[np.int64]]]
    head: Callable[[FinetuneSettings, int, int], ClassificationHead]
    metrics: tuple[str, ...]
