"""What a way to learn from labels decides about a training: what is trained, on which batches, for how many steps."""

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from components.data.tasks.data import Target
from components.learners.task_models.base import Encoded, Task
from components.learners.task_models.model import Objective, TaskModel
from components.learners.task_models.sampler import ExampleSampler
from components.models.base import Batch
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.training.optim import ParameterGroup, discriminative
from components.training.rng import counter_rng, counter_seed
from components.training.windows import Sampler


class Learned(NamedTuple):
    """What a training of one task learns from.

    `inputs` (of the encoder, or of the head if the encoder is not trained) and `targets` are of the
    labelled rows, then of the names of the labels if they are training texts. `taught`: texts that teachers have
    labelled, as piece ids, and their predictions."""

    model: TaskModel
    seed: int
    inputs: Sequence[Encoded]
    targets: Sequence[Target]
    taught: tuple[Sequence[Encoded], Sequence[Target]] = ((), ())


class Way:
    """A way to learn: encoder and head are trained together on the loss of the task, unless a method is overridden."""

    #: Whether the encoder is trained, not only the head.
    trains_encoder: ClassVar[bool] = True
    #: Whether the head is fitted again to the encoder's features at every evaluation, instead of trained with it.
    refits_head: ClassVar[bool] = False
    #: Whether it also learns predictions of teachers; `auto.minutes` does not limit such a way.
    has_teachers: ClassVar[bool] = False
    #: Whether cross-validation prefers the end of the schedule to its beginning.
    prefers_end: ClassVar[bool] = False
    #: Minimum number of labelled rows; with fewer, `method: auto` skips the way if there is a cheaper one.
    least_rows: ClassVar[int] = 0

    def refuse(self, task: Task) -> str | None:
        """The reason why the way does not suit a kind of task; None if it does."""
        return None

    def is_tried(self, task: Task) -> bool:
        """Whether `method: auto` tries the way for a kind of task, if it has another one."""
        return self.refuse(task) is None

    def training(self, settings: FinetuneSettings) -> Training:
        return settings.training

    def schedule(self, settings: FinetuneSettings, *, epoch: int, taught: int) -> tuple[int, int]:
        """Number of steps, and of evaluations. `epoch`: steps per epoch, over all tasks; `taught`: number of texts of
        teachers."""
        return max(settings.min_steps, math.ceil(settings.epochs * epoch)), settings.evaluations

    def trained(self, models: Sequence[TaskModel]) -> nn.Module:
        """The module of the training loop. `models`: one per task, around one encoder."""
        return Objective(models, lambda batch: models[int(batch.get("task", 0))].loss(batch))

    def groups(
        self, models: Sequence[TaskModel], settings: FinetuneSettings, *, unfreeze_every: int
    ) -> list[ParameterGroup]:
        """The trained parameters with their rates, `unfreeze_every` steps between layer groups; others are frozen."""
        return discriminative(
            models[0].encoder.layer_groups(),
            head=[parameter for model in models for parameter in model.own_parameters(head=not self.refits_head)],
            head_scale=settings.head_scale,
            factor=settings.discriminative,
            below_head=settings.discriminative_from == "head",
            unfreezing=settings.unfreezing,
            unfreeze_every=unfreeze_every,
        )

    def sampler(self, learned: Learned) -> Sampler:
        """The batches of the labelled rows."""
        return ExampleSampler(
            learned.inputs,
            learned.targets,
            batch_size=learned.model.settings.training.batch_size,
            seed=counter_seed(learned.seed, "batches"),
            windows=learned.model.windows_learned,
        )


def shares(sizes: Sequence[int], temperature: float) -> NDArray[np.float64]:
    """Probability of each task: size^(1 / temperature), normalised (Arivazhagan et al. 2019, section 4.2)."""
    weights = np.asarray(sizes, dtype=np.float64) ** (1 / temperature)
    return weights / weights.sum()


class TaskMixture(Sampler):
    """Batches of several tasks, one task per step; `task` in a batch is its index.

    The task of a step is a function of (seed, step); its batch is the next one of the task's own sampler. With fewer
    steps, the sequence of tasks is a prefix of the same sequence."""

    def __init__(
        self, samplers: Sequence[Sampler], probabilities: NDArray[np.float64], *, steps: int, seed: int
    ) -> None:
        self.samplers = samplers
        uniform = counter_rng(seed, "tasks").random(steps)
        last = len(samplers) - 1
        self.tasks = np.minimum(np.searchsorted(np.cumsum(probabilities), uniform, side="right"), last)
        #: Number of a step's batch in the task's own sampler.
        self.own = (np.cumsum(self.tasks[:, None] == np.arange(last + 1), axis=0) - 1)[np.arange(steps), self.tasks]

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        task = int(self.tasks[step])
        return self.samplers[task].batch(int(self.own[step]), rank, world) | {"task": torch.tensor(task)}

    def tokens(self, step: int) -> int:
        return self.samplers[self.tasks[step]].tokens(int(self.own[step]))
