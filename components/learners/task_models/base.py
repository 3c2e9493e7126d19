"""The interface of the torch half of a task kind: encoding of rows, and head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from components.data.tasks.data import Fields
from components.learners.task_models.heads import Head
from components.models.base import LanguageModel
from components.settings.finetune import FinetuneSettings
from components.settings.tasks import has
from components.tokenization import Tokenizer

#: (S, F) features of sequences, (S,) the row that each belongs to, and (S,) their lengths (None: equal) -> (B, G)
#: features of rows.
Combine = Callable[[Tensor, Tensor, Tensor | None], Tensor]


#: A vector (F,), or the vectors (U, F) of the units of a sequence, in float32.
Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One row as input of an encoder, or of a head: S sequences (one; one per choice; or one per window of a long
    text).

    Attributes:
        pieces: S arrays (T,) of piece ids, with the family's special pieces; empty for a head.
        segments: S arrays (T,): 0 for the first text and its special pieces, 1 for the second.
        units: S arrays (U, 2): first and last piece of each unit (a word, or a piece of the context); else (0, 2).
        offsets: S arrays (U, 2): character offsets of each unit in the row's context, end exclusive; else (0, 2).
        vectors: of each sequence, what a head reads; empty for an encoder.
    """

    pieces: list[NDArray[np.int64]]
    segments: list[NDArray[np.int64]]
    units: list[NDArray[np.int64]]
    offsets: list[NDArray[np.int64]]
    vectors: list[Vectors] = field(default_factory=list)

    @classmethod
    def of_texts(cls, pieces: Sequence[ArrayLike], segments: Sequence[ArrayLike] | None = None) -> Encoded:
        arrays = [np.asarray(sequence, dtype=np.int64) for sequence in pieces]
        none = [np.zeros((0, 2), dtype=np.int64)] * len(arrays)
        given = [np.zeros_like(sequence) for sequence in arrays] if segments is None else segments
        return cls(arrays, [np.asarray(segment, dtype=np.int64) for segment in given], none, none)

    @classmethod
    def of_vectors(cls, vectors: Iterable[Vectors], offsets: Sequence[NDArray[np.int64]] = ()) -> Encoded:
        """A row as input of a head."""
        return cls([], [], [], list(offsets), list(vectors))

    @property
    def sizes(self) -> list[int]:
        """Number of pieces, of units, or of vectors of each sequence."""
        return list(map(len, self.pieces or map(np.atleast_2d, self.vectors)))


@dataclass(frozen=True)
class Task:
    """One entry of the table TASKS.

    Attributes:
        reads: input of the head: one pooled vector per sequence (`text`), or one vector per unit (`units`).
        encode: (rows, tokenizer, encoder, settings) -> the rows as piece ids.
        head: (settings, number of features, labels) -> the layers on top of the encoder.
        combine: (settings, encoder) -> function that combines the vectors of a row's sequences before the head; None:
            the head reads each sequence separately.
        single: whether a row is one text, and its input is the text itself.
        windows_apart: whether each window of a row has its own loss, so that a step may use a sample of them.
        labels_rows: whether the targets are labels of a row with one vector, so that rows can be compared by their
            labels (`ways.contrastive.pair_loss`).
        imitates: whether its head learns the predictions of a teacher.
    """

    kind: str
    reads: Literal["text", "units"]
    encode: Callable[[Sequence[Fields], Tokenizer, LanguageModel, FinetuneSettings], list[Encoded]]
    head: Callable[[FinetuneSettings, int, Sequence[str]], Head]
    combine: Callable[[FinetuneSettings, LanguageModel], Combine | None] = lambda settings, encoder: None
    single: bool = False
    windows_apart: bool = False
    labels_rows: bool = False
    imitates: bool = False


def refuse_settings(task: Task, settings: FinetuneSettings) -> str | None:
    """The reason why `label_names` does not suit a kind of task; None if it does."""
    if settings.label_names != "always" or (task.labels_rows and task.single):
        return None
    needs = "a kind that reads one text" if task.labels_rows else "labels of whole texts"
    return f"label_names needs {needs}; set it to none for kind {task.kind}"


def refuse_distillation(task: Task, settings: FinetuneSettings) -> str | None:
    """What is wrong if a model of this kind teaches or learns by distillation; None if nothing is."""
    if not task.imitates:
        return f"kind {task.kind} has no predictions that a student learns; remove the task or the group"
    if has(task.kind, "words") and settings.tagger != "linear":
        return f"tagger {settings.tagger} has no probabilities of the tags of a word; set it to linear"
    return None


def most_pieces(settings: FinetuneSettings, encoder: LanguageModel) -> int:
    """Maximum number of pieces of a sequence, special pieces included: `max_length`, or the encoder's limit."""
    return min(settings.max_length, encoder.max_tokens or settings.max_length)
