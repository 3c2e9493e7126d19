"""Several tasks around one encoder: which task a step belongs to, and the model that computes its loss.

Each step samples one task with probability proportional to rows^(1 / temperature): temperature
1 samples in proportion to the number of rows, higher temperatures approach the uniform distribution (Arivazhagan et al.
2019, section 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from components.models.base import Batch, Carry, Losses
from components.task_models.model import TaskModel
from components.training.rng import counter_rng
from components.training.windows import Sampler


def shares(sizes: Sequence[int], temperature: float) -> NDArray[np.float64]:
    """Probability of each task: size^(1 / temperature), normalised."""
    weights = np.asarray(sizes, dtype=np.float64) ** (1 / temperature)
    return weights / weights.sum()


class TaskMixture(Sampler):
    """Batches of several tasks, one task per step; `task` in a batch is its index.

    The task of a step is a function of (seed, step); its batch is the next one of the task's own sampler.

    Args:
        samplers: one per task.
        probabilities: one per task.
        steps: number of steps; with fewer steps, the sequence of tasks is a prefix of the same sequence.
        seed: of the sequence of tasks.
    """

    def __init__(
        self, samplers: Sequence[Sampler], probabilities: NDArray[np.float64], *, steps: int, seed: int
    ) -> None:
        self.samplers = samplers
        uniform = counter_rng(seed, "tasks").random(steps)
        last = len(samplers) - 1
        self.tasks = np.minimum(np.searchsorted(np.cumsum(probabilities), uniform, side="right"), last)
        #: (steps + 1, tasks) number of batches of each task before a step.
        taken = np.cumsum(self.tasks[:, None] == np.arange(len(samplers)), axis=0)
        self.before = np.concatenate([np.zeros((1, len(samplers)), dtype=np.int64), taken])

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of a step, of one task."""
        task = int(self.tasks[step])
        batch = self.samplers[task].batch(int(self.before[step, task]), rank, world)
        return batch | {"task": torch.tensor(task)}

    def tokens_before(self, step: int) -> int:
        """Number of tokens in the batches before a step."""
        return sum(
            sampler.tokens_before(int(count)) for sampler, count in zip(self.samplers, self.before[step], strict=True)
        )


class JointModel(nn.Module):
    """The models of several tasks, with a common encoder."""

    def __init__(self, models: Sequence[TaskModel]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        """The loss of the batch's task."""
        model = self.models[int(batch["task"])]
        assert isinstance(model, TaskModel)
        return model.losses(batch)
