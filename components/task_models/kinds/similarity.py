"""Similarity of two texts: regression.

The prediction must be symmetric: a causal Transformer reads both orders, and their representations are added (Radford
et al. 2018, section 3.3); encoders without attention read the texts as two sequences (see `inputs`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.models.base import Batch, LanguageModel
from components.settings.finetune import FinetuneSettings
from components.task_models.base import Encoded, Task
from components.task_models.heads import TextHead, precise
from components.task_models.inputs import combination, encode_pairs, likened, summed
from components.tasks.data import Fields
from components.tokenization import Tokenizer


class RegressionHead(TextHead):
    """One number per row. The targets are scaled to [0, 1] by `low` and `range` of the training rows."""

    low: Tensor
    range: Tensor

    def __init__(self, features: int, outputs: int, **shape: object) -> None:
        super().__init__(features, outputs, **shape)  # type: ignore[arg-type]
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("range", torch.ones(()))

    def prepare(self, targets: Sequence[NDArray[np.float64]]) -> None:
        """Set `low` and `range` to those of the training targets."""
        values = np.asarray([target[0] for target in targets])
        self.low.fill_(float(values.min()))
        self.range.fill_(float(values.max() - values.min()) or 1.0)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Mean squared error of the scaled targets, plus the penalty."""
        found = precise(outputs[:, 0])
        wanted = (batch["targets"][:, 0].to(found.dtype) - self.low) / self.range
        return self.penalised(nn.functional.mse_loss(found, wanted))

    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        """[value] of each row, on the scale of the targets; not clipped."""
        return list((self.low + self.range * outputs.float()).cpu().numpy())


def encode(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings
) -> list[Encoded]:
    """Both texts; in both orders for a causal encoder."""
    return encode_pairs(rows, tokenizer, encoder, settings, both_orders=True)


def head(settings: FinetuneSettings, features: int, labels: Sequence[str]) -> RegressionHead:
    """The head of `finetune.<family>` with one output."""
    return RegressionHead.of(settings, features, 1)


TASK = Task(
    kind="similarity",
    reads="text",
    encode=encode,
    head=head,
    combine=combination(likened, turned=summed),
)
