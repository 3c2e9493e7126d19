"""Multi-label classification: independent probabilities of the labels."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.learners.task_models.base import Task
from components.learners.task_models.heads import LabelHead, divergence_at, precise
from components.learners.task_models.inputs import pooling_of_windows
from components.learners.task_models.kinds.classification import encode
from components.models.base import Batch


class MultilabelHead(LabelHead):
    exclusive = False

    def penalty_of(self, strength: float, targets: Sequence[NDArray[np.float64]]) -> float:
        """The penalty of any head, divided by the number of labels, because the loss is a mean over the labels too."""
        return super().penalty_of(strength, targets) / self.output.out_features

    def log_prior(self, targets: Sequence[NDArray[np.float64]]) -> Tensor:
        given = [label for target in targets for label in target.astype(np.int64)]
        counts = np.bincount(given, minlength=self.output.out_features)
        varies = (counts > 0) & (counts < len(targets))
        return torch.from_numpy(np.log(np.where(varies, counts / np.maximum(1, len(targets) - counts), 1.0)))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Binary cross entropy, averaged over rows and labels, plus the penalty."""
        targets = batch["targets"]
        given = targets.new_zeros(len(targets), outputs.shape[1] + 1)
        # Padding is mapped to an extra label, which is dropped.
        given.scatter_(1, targets.nan_to_num(outputs.shape[1]).long(), 1.0)
        result = self.with_prior(precise(outputs))
        wanted = given[:, :-1].to(result.dtype)
        return self.penalised(nn.functional.binary_cross_entropy_with_logits(result, wanted))

    def imitation(self, outputs: Tensor, batch: Batch, *, temperature: float) -> Tensor:
        """T^2 KL of each label's Bernoulli distribution at temperature T, averaged over rows and labels."""
        result = precise(outputs)
        p = batch["targets"].to(result.dtype)
        both = torch.stack([torch.zeros_like(result), result], dim=-1)
        return divergence_at(both, torch.stack([1 - p, p], dim=-1), temperature).mean()

    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        return list(outputs.float().sigmoid().cpu().numpy())


TASK = Task(
    kind="multilabel",
    reads="text",
    encode=encode,
    head=lambda settings, features, labels: MultilabelHead.of(settings, features, len(labels)),
    combine=pooling_of_windows,
    labels_rows=True,
    imitates=True,
    single=True,
)
