"""Outputs of an encoder's frozen lower layers, computed once for each text that is trained on.

They depend on no label. The steps and the evaluations of a run then compute the layers above them only.

Shapes: B texts, T pieces of the longest, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from components.learners.task_models.base import Encoded
from components.learners.task_models.model import batches_by_length, evaluating
from components.learners.task_models.sampler import pad
from components.models.layers.masked import MaskedModel

#: Maximum number of pieces of all texts; of more, the layers are computed in every step.
MOST_PIECES: Final = 100_000


class LowerStates:
    """States of the texts of a run, computed when the first step reads them. Dropout is not applied to them.

    Args:
        encoder: whose embeddings and first `depth` blocks are frozen.
        encoded: the rows; texts of together more than `MOST_PIECES` are not kept.
    """

    def __init__(self, encoder: MaskedModel, encoded: Sequence[Encoded], *, depth: int) -> None:
        self.encoder, self.depth = encoder, depth
        texts = {pieces.tobytes(): pieces for row in encoded for pieces in row.pieces}
        self._texts = texts if sum(map(len, texts.values())) <= MOST_PIECES else {}
        self._states: dict[bytes, Tensor] = {}

    def of(self, tokens: Tensor, lengths: Tensor) -> Tensor | None:
        """(B, T, D) states of texts, padded with 0; None if not all of them are kept.

        Args:
            tokens: (B, T).
            lengths: (B,).
        """
        keys = [row[:size].tobytes() for row, size in zip(tokens.cpu().numpy(), lengths.tolist(), strict=True)]
        if not all(key in self._texts for key in keys):
            return None
        if not self._states:
            self._compute(tokens.device)
        states = torch.nn.utils.rnn.pad_sequence([self._states[key] for key in keys], batch_first=True)
        return torch.nn.functional.pad(states, (0, 0, 0, tokens.shape[1] - states.shape[1]))

    def above(self, below: Tensor, lengths: Tensor) -> list[Tensor]:
        """The hidden states above states of `of`."""
        return self.encoder.states_above(self.depth, below, lengths)

    def _compute(self, device: torch.device) -> None:
        keys, texts = list(self._texts), list(self._texts.values())
        sizes = np.asarray(list(map(len, texts)))
        # Steps with gradients refuse tensors of inference mode.
        with torch.inference_mode(False), torch.no_grad(), evaluating(self.encoder):
            for rows in batches_by_length(sizes, np.ones_like(sizes)):
                tokens, lengths = (part.to(device) for part in pad([texts[row] for row in rows]))
                states = self.encoder.states_below(self.depth, tokens, lengths)
                for row, state in zip(rows.tolist(), states, strict=True):
                    self._states[keys[row]] = state[: sizes[row]].clone()
