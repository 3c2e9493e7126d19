"""The head of extractive question answering: scores of start and end for each unit (piece of the context).

Devlin et al. 2019, sections 4.2 and 4.3: the score of a span from unit i to unit j is start_i + end_j; the score of no
answer is start_0 + end_0, where unit 0 represents the whole sequence ([CLS] for BERT). The target of a window without
the answer is unit 0. The prediction of a row is the best span of all windows, if its score exceeds the lowest score of
no answer of the windows by a threshold, which is fitted on dev.

Shapes: S sequences of B rows, U units, K maximum number of units of an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.data.scoring.answers import NEVER, apply_threshold, best_threshold, refused
from components.data.tasks.data import Answer
from components.learners.task_models.heads import Head
from components.learners.task_models.pooling import mask
from components.models.base import Batch
from components.models.layers.host import move, on_host

#: Maximum length of an answer in characters.
LONGEST_ANSWER: Final = 160


class Answering(Head):
    """Scores of starts and ends."""

    reads_units = True
    outputs = 2
    threshold: Tensor

    def __init__(self, features: int, outputs: int, **shape: Any) -> None:
        super().__init__(features, outputs, **shape)
        # Added to the score of no answer; fitted on dev and stored with the weights.
        self.register_buffer("threshold", torch.zeros(()))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Cross entropy of start and end for the first reference of each row, averaged over sequences."""
        inside_SU = mask(batch["unit_lengths"], outputs.shape[1])
        scores_SU2 = outputs.float().masked_fill(~inside_SU.unsqueeze(-1), -torch.inf)
        return nn.functional.cross_entropy(scores_SU2.transpose(1, 2).flatten(0, 1), _true_units(batch).T.flatten())

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answer]:
        """[start, end, score, score of no answer] of each row; start == end if the latter is higher."""
        spans = best_spans(outputs.float(), batch["offsets"], batch["unit_lengths"], longest=LONGEST_ANSWER)
        none = outputs[:, 0].float().sum(-1).double().cpu().numpy()
        rows = on_host(batch["rows"]).numpy()
        # Over the windows of a row: the best span, and the lowest score of no answer.
        order = np.lexsort((-spans[:, 2], rows))
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        best = spans[order[first]]
        result = np.column_stack([best, np.minimum.reduceat(none, first)]).astype(np.float32)
        return self._decided(result) if self.decides else list(result)

    def calibrate(self, raw: list[Answer], score: Callable[[list[Answer]], NDArray[np.float64]]) -> list[Answer]:
        """Fit the threshold that maximises the mean score; returns the answers with it."""
        rows = np.stack(raw)
        margin = rows[:, 2].astype(np.float64) - rows[:, 3]
        self.calibration = best_threshold(margin, score(list(rows)), score([refused(row) for row in rows]))
        return self._decided(rows)

    def _decided(self, rows: NDArray[np.float32]) -> list[Answer]:
        rows[:, 3] += float(self.threshold)
        return apply_threshold(rows)

    @property
    def calibration(self) -> float:
        return float(self.threshold)

    @calibration.setter
    def calibration(self, value: float) -> None:
        self.threshold.fill_(value)


def best_spans(outputs: Tensor, offsets: Tensor, lengths: Tensor, *, longest: int) -> NDArray[np.float64]:
    """(S, 3) start and end in characters (end exclusive) and score of the best span of each sequence, without unit 0;
    0, 0, `NEVER` without units. An answer is at most `longest` characters or one unit."""
    result = np.tile([0, 0, NEVER], (len(outputs), 1))
    spans = zip(result, *(each.cpu().numpy() for each in (outputs, offsets, lengths)), strict=True)
    for best, (starts_U, ends_U), (begin_U, end_U), count in (
        (best, scores[1:count].T, characters[1:count].T, count) for best, scores, characters, count in spans
    ):
        if count > 1:
            scores_UU = starts_U[:, None] + ends_U
            allowed_UU = np.triu(end_U - begin_U[:, None] <= longest) | np.eye(count - 1, dtype=bool)
            scores_UU[~allowed_UU] = -np.inf
            first, last = divmod(int(scores_UU.argmax()), count - 1)
            best[:] = begin_U[first], end_U[last], scores_UU[first, last]
    return result


def _true_units(batch: Batch) -> Tensor:
    """(2, S) first and last unit of the answer in each sequence; 0 if the sequence does not contain all of it."""
    offsets, lengths, targets, rows = (
        on_host(batch[name]).numpy() for name in ("offsets", "unit_lengths", "targets", "rows")
    )
    result = np.zeros((2, len(rows)), dtype=np.int64)
    for sequence, (row, count) in enumerate(zip(rows, lengths, strict=True)):
        begin, end = targets[row, :2] if targets.shape[1] > 1 else (np.nan, np.nan)
        begin_U, end_U = offsets[sequence, 1:count].T
        touched = np.flatnonzero((begin_U < end) & (end_U > begin))
        # The first (last) unit of a window must start (end) where the answer does, otherwise the answer is truncated.
        if len(touched) and (touched[0] or begin_U[0] <= begin) and (touched[-1] < count - 2 or end_U[-1] >= end):
            result[:, sequence] = touched[[0, -1]] + 1
    return move(torch.from_numpy(result), batch["offsets"].device)
