"""What a way to learn from labels decides about a run: what is trained, on which batches, for how many steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from components.data.tasks.data import Target
from components.learners.task_models.base import Encoded, Task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.sampler import ExampleSampler
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.training.optim import ParameterGroup, discriminative
from components.training.rng import counter_seed
from components.training.windows import Sampler


@dataclass(frozen=True)
class TrainingRows:
    """The rows that a run learns from.

    `targets` and `inputs` (piece ids, or features before training if the encoder is not trained) are of the labelled
    rows, then of the names of the labels if they are training texts. `taught`: predictions of teachers for further
    texts, `taught_inputs`."""

    model: TaskModel
    seed: int
    targets: Sequence[Target]
    inputs: Any
    taught: Sequence[Target] = ()
    taught_inputs: Sequence[Encoded] = ()

    @property
    def settings(self) -> FinetuneSettings:
        return self.model.settings


class Way:
    """A way to learn: encoder and head are trained together on the loss of the task, unless a method is overridden."""

    #: Whether the encoder is trained, not only the head.
    trains_encoder: ClassVar[bool] = True
    #: Whether the head is fitted again to the encoder's features at every evaluation, instead of trained with it.
    refits_head: ClassVar[bool] = False
    #: Whether the run also learns predictions of teachers; `auto.minutes` does not limit such a way.
    has_teachers: ClassVar[bool] = False
    #: Whether cross-validation prefers the end of the schedule to its beginning.
    prefers_end: ClassVar[bool] = False
    #: Minimum number of labelled rows; with fewer, `method: auto` skips the way if the run has a cheaper one.
    least_rows: ClassVar[int] = 0

    def refuse(self, task: Task) -> str | None:
        """The reason why the way does not suit a kind of task; None if it does."""
        return None

    def is_tried(self, task: Task) -> bool:
        """Whether `method: auto` tries the way for a kind of task, if it has another one."""
        return self.refuse(task) is None

    def training(self, settings: FinetuneSettings) -> Training:
        return settings.training

    def steps(self, settings: FinetuneSettings, *, epoch: int, taught: int) -> int:
        """Number of steps of a run.

        Args:
            settings: of the run.
            epoch: steps per epoch, over all tasks.
            taught: number of texts of teachers.
        """
        return max(settings.min_steps, math.ceil(settings.epochs * epoch))

    def evaluations(self, settings: FinetuneSettings) -> int:
        return settings.evaluations

    def shortened(self, settings: FinetuneSettings, *, epochs: float) -> FinetuneSettings:
        """The settings of a run with this number of epochs."""
        return settings.model_copy(update={"epochs": epochs, "min_steps": 0})

    def operations(self, settings: FinetuneSettings) -> float:
        """Floating-point operations of training per parameter of the encoder and piece of an epoch: 2 of the forward
        pass and 4 of the backward pass (Kaplan et al. 2020, section 2.1)."""
        return 6.0

    def stored(self, model: TaskModel) -> nn.Module:
        """The part of a model whose best weights are stored."""
        return model

    def trained(self, model: TaskModel, *, taught: bool) -> nn.Module:
        """The module of the training loop; `taught`: whether teachers have labelled texts."""
        return self.stored(model)

    def groups(
        self, models: Sequence[TaskModel], settings: FinetuneSettings, *, unfreeze_every: int
    ) -> list[ParameterGroup]:
        """The trained parameters with their rates, `unfreeze_every` steps between layer groups; others are frozen.
        `models`: one per task, around one encoder."""
        return discriminative(
            models[0].encoder.layer_groups(),
            head=[parameter for model in models for parameter in model.own_parameters(head=not self.refits_head)],
            head_scale=settings.head_scale,
            factor=settings.discriminative,
            below_head=settings.discriminative_from == "head",
            unfreezing=settings.unfreezing,
            unfreeze_every=unfreeze_every,
        )

    def sampler(self, rows: TrainingRows) -> Sampler:
        return ExampleSampler(
            rows.inputs,
            rows.targets,
            batch_size=rows.settings.training.batch_size,
            seed=counter_seed(rows.seed, "batches"),
            windows=rows.model.windows_learned,
        )

    def penalty_factor(self, *, labelled: int, taught: int) -> float:
        """Factor on the head's L2 penalty after training on the frozen encoder."""
        return 1.0
