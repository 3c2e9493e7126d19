"""The torch half of `toy_kind`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from components.learners.task_models.base import Task
from components.learners.task_models.heads import Head, precise
from components.learners.task_models.inputs import pooling_of_windows
from components.learners.task_models.kinds.texts import encode
from components.models.base import Batch


class TruthHead(Head):
    """One logit per row."""

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        logits = precise(outputs[:, 0])
        targets = batch["targets"][:, 0].to(logits.dtype)
        return self.penalised(nn.functional.binary_cross_entropy_with_logits(logits, targets))

    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        return list(outputs.float().sigmoid().cpu().numpy())


TASK = Task(kind="truth", reads="text", encode=encode, head=TruthHead.of, combine=pooling_of_windows)
