"""`method: distil`: encoder and head also learn the predictions of teachers for texts without labels.

L = w L_task(labelled rows) + (1 - w) L_teacher(unlabelled rows), where L_teacher is `Head.imitation`: T^2
times the Kullback-Leibler divergence from the teacher's probabilities at temperature T (Hinton et al. 2015, "Distilling
the knowledge in a neural network", section 2).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from components.learners.task_models.model import Objective, TaskModel
from components.learners.task_models.sampler import ExampleSampler
from components.learners.ways.base import Learned, Way
from components.models.base import Batch
from components.settings.finetune import FinetuneSettings
from components.training.checkpoint import below
from components.training.rng import counter_seed
from components.training.windows import Sampler

#: Prefix of the tensors of a batch that belong to the unlabelled rows; its `targets` are the teacher's answers.
TAUGHT = "taught."
#: T and w.
TEMPERATURE, LABEL_WEIGHT = 2.0, 0.1
#: Maximum number of unlabelled rows of a batch, beside `training.batch_size` labelled rows.
TAUGHT_ROWS = 64
#: Epochs over these rows.
EPOCHS = 5


class Distil(Way):
    """Distillation; without texts of teachers the same as fine-tuning."""

    has_teachers = True
    prefers_end = True

    def schedule(self, settings: FinetuneSettings, *, epoch: int, taught: int) -> tuple[int, int]:
        return max(1, math.ceil(EPOCHS * taught / TAUGHT_ROWS)), settings.evaluations

    def trained(self, models: Sequence[TaskModel]) -> nn.Module:
        return Objective(models, partial(loss, models[0]))

    def sampler(self, learned: Learned) -> Sampler:
        labelled, (texts, answers) = super().sampler(learned), learned.taught
        if not texts:
            return labelled
        size, seed = min(len(texts), TAUGHT_ROWS), counter_seed(learned.seed, "taught")
        return DistillationSampler(labelled, ExampleSampler(texts, answers, batch_size=size, seed=seed))


@dataclass
class DistillationSampler(Sampler):
    """Batches of labelled rows, with unlabelled rows and the teacher's answers."""

    labelled: Sampler
    taught: Sampler

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        taught = self.taught.batch(step, rank, world)
        return self.labelled.batch(step, rank, world) | {f"{TAUGHT}{name}": value for name, value in taught.items()}

    def tokens(self, step: int) -> int:
        return self.labelled.tokens(step) + self.taught.tokens(step)


def loss(model: TaskModel, batch: Batch) -> Tensor:
    """w times the loss of the labelled rows, plus (1 - w) times the loss of the unlabelled rows if there are any."""
    taught = below(TAUGHT, batch)
    labelled = model.loss({name: value for name, value in batch.items() if not name.startswith(TAUGHT)})
    if not taught:
        return labelled
    imitation = model.head.imitation(model(taught), taught, temperature=TEMPERATURE)
    return LABEL_WEIGHT * labelled + (1 - LABEL_WEIGHT) * imitation
