"""`method: distil`: encoder and head also learn the predictions of teachers for texts without labels.

L = w L_task(labelled rows) + (1 - w) L_teacher(unlabelled rows), where L_teacher is `ImitatingHead.imitation`: T^2
times the Kullback-Leibler divergence from the teacher's probabilities at temperature T (Hinton et al. 2015, "Distilling
the knowledge in a neural network", section 2).
"""

import math

from torch import Tensor, nn

from components.learners.task_models.heads import ImitatingHead
from components.learners.task_models.model import TaskModel
from components.learners.task_models.sampler import ExampleSampler
from components.learners.ways.base import TrainingRows, Way
from components.models.base import Batch, Carry, Losses, count_tensor
from components.settings.finetune import FinetuneSettings
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

    def steps(self, settings: FinetuneSettings, *, epoch: int, taught: int) -> int:
        return max(1, math.ceil(EPOCHS * taught / TAUGHT_ROWS))

    def operations(self, settings: FinetuneSettings) -> float:
        """Of the labelled rows, and of the texts beside them."""
        return 6.0 + 6.0 * TAUGHT_ROWS / settings.step_rows

    def trained(self, model: TaskModel, *, taught: bool) -> nn.Module:
        return DistilledModel(model) if taught else model

    def sampler(self, rows: TrainingRows) -> Sampler:
        labelled = super().sampler(rows)
        assert isinstance(labelled, ExampleSampler)
        if not rows.taught:
            return labelled
        size, seed = min(len(rows.taught), TAUGHT_ROWS), counter_seed(rows.seed, "taught")
        taught = ExampleSampler(rows.taught_inputs, rows.taught, batch_size=size, seed=seed)
        return DistillationSampler(labelled, taught)

    def penalty_factor(self, *, labelled: int, taught: int) -> float:
        """The penalty is divided among all rows, the texts of the teachers included."""
        return labelled / (labelled + taught)


class DistillationSampler(Sampler):
    """Batches of labelled rows, with unlabelled rows and the teacher's answers."""

    def __init__(self, labelled: ExampleSampler, taught: ExampleSampler) -> None:
        self.labelled, self.taught = labelled, taught

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        taught = self.taught.batch(step, rank, world)
        return self.labelled.batch(step, rank, world) | {f"{TAUGHT}{name}": value for name, value in taught.items()}

    def tokens(self, step: int) -> int:
        return self.labelled.tokens(step) + self.taught.tokens(step)


class DistilledModel(nn.Module):
    """A task model that learns from labelled rows and from a teacher."""

    def __init__(self, model: TaskModel) -> None:
        super().__init__()
        self.model = model
        self.eval()

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        """w times the loss of the labelled rows, plus (1 - w) times the loss of the unlabelled rows."""
        taught = {name.removeprefix(TAUGHT): value for name, value in batch.items() if name.startswith(TAUGHT)}
        labelled = {name: value for name, value in batch.items() if not name.startswith(TAUGHT)}
        result, weight = self.model.losses(labelled), LABEL_WEIGHT
        loss = self.imitation(self.model(taught), taught)
        count = count_tensor(len(taught["targets"]), loss)
        return Losses(
            weight * result.loss + (1 - weight) * loss, result.sums | {"unlabelled": (loss.detach() * count, count)}
        )

    def imitation(self, outputs: Tensor, batch: Batch) -> Tensor:
        head = self.model.head
        assert isinstance(head, ImitatingHead)  # as `refuse_distillation` has found
        return head.imitation(outputs, batch, temperature=TEMPERATURE)
