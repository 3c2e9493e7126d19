"""The head of kinds whose answer is a number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.models.base import Batch
from components.settings.finetune import FinetuneSettings
from components.task_models.heads import ImitatingHead, precise


class RegressionHead(ImitatingHead):
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

    def penalty_of(self, strength: float, targets: Sequence[NDArray[np.float64]]) -> float:
        """As of any head; strength is alpha of scikit-learn's Ridge, whose squared errors have no factor 1 / 2."""
        return 2 * super().penalty_of(strength, targets)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Mean squared error of the scaled targets, plus the penalty."""
        return self.penalised(self.imitation(outputs, batch))

    def imitation(self, outputs: Tensor, batch: Batch, *, temperature: float = 1.0) -> Tensor:
        """Mean squared error of the scaled numbers; numbers have no temperature."""
        found = precise(outputs[:, 0])
        wanted = (batch["targets"][:, 0].to(found.dtype) - self.low) / self.range
        return nn.functional.mse_loss(found, wanted)

    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        """[value] of each row, on the scale of the targets; not clipped."""
        return list((self.low + self.range * outputs.float()).cpu().numpy())


def head(settings: FinetuneSettings, features: int, labels: Sequence[str]) -> RegressionHead:
    """The head of `finetune.<family>` with one output."""
    return RegressionHead.of(settings, features, 1)
