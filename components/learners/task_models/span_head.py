"""The head of extractive question answering: scores of start and end for each unit (piece of the context).

Devlin et al. 2019, sections 4.2 and 4.3: the score of a span from unit i to unit j is start_i + end_j; the score of no
answer is start_0 + end_0, where unit 0 represents the whole sequence ([CLS] for BERT). The target of a window without
the answer is unit 0. The prediction of a row is the best span of all windows, if its score exceeds the lowest score of
no answer of the windows by a threshold, which is fitted on dev.

Shapes: S sequences of B rows, U units, K maximum number of units of an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.data.scoring.answers import NEVER, apply_threshold, best_threshold, refused
from components.learners.task_models.heads import TextHead, dropouts_of
from components.learners.task_models.pooling import Inside, mask
from components.models.base import Batch
from components.models.layers.host import on_host
from components.settings.finetune import FinetuneSettings

if TYPE_CHECKING:
    # Imported for type checkers only.
    from components.data.tasks.data import Answer

#: Maximum length of an answer in characters.
LONGEST_ANSWER: Final = 160


class Answering(TextHead):
    """Scores of starts and ends.

    Args:
        settings: normalisation, dropout and hidden layer of `TextHead`.
    """

    threshold: Tensor

    def __init__(self, features: int, settings: FinetuneSettings) -> None:
        super().__init__(
            features, 2, hidden=settings.head_hidden, dropout=dropouts_of(settings), norm=settings.head_norm
        )
        self.longest = LONGEST_ANSWER
        # Added to the score of no answer; fitted on dev and stored with the weights.
        self.register_buffer("threshold", torch.zeros(()))

    @property
    def is_linear(self) -> bool:
        """False: the units of all rows together need too much memory for a closed-form fit."""
        return False

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(S, U, F) and (S,) numbers of units -> scores of starts and ends (S, U, 2), 0 at padding."""
        assert lengths is not None, "this head reads units"
        units = Inside.of(lengths, features.shape[1])
        return units.put(super().forward(units.take(features)))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Cross entropy of start and end for the first reference of each row, averaged over sequences."""
        inside_SU = mask(batch["unit_lengths"], outputs.shape[1])
        scores_SU2 = outputs.float().masked_fill(~inside_SU.unsqueeze(-1), -torch.inf)
        start_S, end_S = _true_units(batch)
        cross_entropy = nn.functional.cross_entropy
        return (cross_entropy(scores_SU2[..., 0], start_S) + cross_entropy(scores_SU2[..., 1], end_S)) / 2

    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        """[start, end, score, score of no answer] of each row; start == end if the latter is higher."""
        spans_S3 = best_spans(outputs.float(), batch["offsets"], batch["unit_lengths"], longest=self.longest)
        none_S = outputs[:, 0].float().sum(-1)
        rows = on_host(batch["rows"]).numpy()
        spans, none = spans_S3.double().cpu().numpy(), none_S.double().cpu().numpy()
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


def best_spans(outputs: Tensor, offsets: Tensor, lengths: Tensor, *, longest: int) -> Tensor:
    """(S, 3) float64: start and end in characters (end exclusive) and score of the best span of each sequence, without
    unit 0; 0, 0, `NEVER` without units. An answer is at most `longest` characters or one unit."""
    count, units = outputs.shape[:2]
    inside_SU = mask(lengths, units)
    inside_SU[:, 0] = False
    begin_SU, end_SU = offsets.unbind(-1)
    far = torch.iinfo(torch.int64).max
    # Maximum number of units of a span that starts at each unit.
    reach_SU = torch.searchsorted(end_SU.masked_fill(~mask(lengths, units), far), begin_SU + longest, right=True)
    reach_SU = (reach_SU - torch.arange(units, device=outputs.device)).masked_fill(~inside_SU, 1).clamp(min=1)
    most = int(reach_SU.amax())
    starts_SU, ends_SU = outputs.masked_fill(~inside_SU.unsqueeze(-1), -torch.inf).unbind(-1)
    ends_SUK = nn.functional.pad(ends_SU, (0, most - 1), value=-torch.inf).unfold(1, most, 1)
    allowed_SUK = torch.arange(most, device=outputs.device) < reach_SU.unsqueeze(-1)
    scores_SUK = (starts_SU.unsqueeze(-1) + ends_SUK).masked_fill(~allowed_SUK, -torch.inf)
    best_S, index_S = scores_SUK.flatten(1).max(1)
    first_S, last_S = index_S // most, index_S // most + index_S % most
    rows = torch.arange(count, device=outputs.device)
    found_S3 = torch.stack([begin_SU[rows, first_S], end_SU[rows, last_S], best_S], -1).double()
    none_3 = found_S3.new_zeros(3)
    none_3[2] = NEVER
    return torch.where((lengths > 1).unsqueeze(-1), found_S3, none_3)


def _true_units(batch: Batch) -> tuple[Tensor, Tensor]:
    """(S,) first and last unit of the answer in each sequence; 0 if the sequence does not contain all of it."""
    offsets, lengths, targets = batch["offsets"], batch["unit_lengths"], batch["targets"]
    units = offsets.shape[1]
    if targets.shape[1] < 2:
        return torch.zeros_like(lengths), torch.zeros_like(lengths)
    first_B2 = targets[:, :2].nan_to_num(nan=-1.0).long()
    begin_S1, end_S1 = first_B2[batch["rows"]].split(1, dim=1)
    inside_SU = mask(lengths, units)
    inside_SU[:, 0] = False
    touches_SU = inside_SU & (offsets[..., 0] < end_S1) & (offsets[..., 1] > begin_S1)
    start_S = touches_SU.int().argmax(1)
    last_S = units - 1 - touches_SU.flip(1).int().argmax(1)
    rows = torch.arange(len(lengths), device=lengths.device)
    # The first (last) unit of a window must start (end) where the answer does, otherwise the answer is truncated.
    whole_S = (start_S > 1) | (offsets[rows, start_S, 0] <= begin_S1[:, 0])
    whole_S = whole_S & ((last_S < lengths - 1) | (offsets[rows, last_S, 1] >= end_S1[:, 0]))
    held_S = touches_SU.any(1) & whole_S
    return start_S.where(held_S, 0), last_S.where(held_S, 0)
