"""`method: contrastive`: the encoder is trained on pairs of labelled texts, and the head is fitted to its features
(SetFit, Tunstall et al. 2022).

Shapes: B rows of a batch, F features, X labels of a row (padding included).
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from components.data.tasks.data import Target
from components.learners.task_models.base import Encoded, Task
from components.learners.task_models.heads import precise
from components.learners.task_models.model import Objective, TaskModel
from components.learners.task_models.sampler import ExampleSampler
from components.learners.ways.base import Learned, Way
from components.settings import contrastive
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.training.optim import ParameterGroup
from components.training.rng import counter_rng, counter_seed
from components.training.windows import Sampler


class Contrastive(Way):
    """Training of the encoder on pairs. The end of the schedule is preferred: few labels cannot order its points."""

    refits_head = True
    prefers_end = True

    def refuse(self, task: Task) -> str | None:
        """Kinds whose rows have no labels by which they can be compared."""
        if task.labels_rows:
            return None
        return f"method contrastive compares texts by their labels and does not suit kind {task.kind}; use finetune"

    def is_tried(self, task: Task) -> bool:
        """Not for pairs: on SICK, with MiniLM, it lowered the score of the head on the frozen encoder."""
        return task.single and super().is_tried(task)

    def training(self, settings: FinetuneSettings) -> Training:
        return settings.training.model_copy(update={"rate": contrastive.RATE})

    def schedule(self, settings: FinetuneSettings, *, epoch: int, taught: int) -> tuple[int, int]:
        """The epochs of contrastive training, with at most its number of steps; one evaluation, at the end, which is
        nearly always chosen."""
        return contrastive.steps_of(settings.contrastive.epochs, epoch=epoch), 1

    def trained(self, models: Sequence[TaskModel]) -> nn.Module:
        """The model on all pairs of a batch's rows, with the auxiliary loss of the language model."""
        (model,) = models
        return Objective(models, partial(model.loss, loss_of=pair_loss))

    def groups(
        self, models: Sequence[TaskModel], settings: FinetuneSettings, *, unfreeze_every: int
    ) -> list[ParameterGroup]:
        """As in fine-tuning; without the embeddings if they stay frozen, unless the model has nothing else."""
        groups = super().groups(models, settings, unfreeze_every=unfreeze_every)
        if settings.contrastive.embeddings:
            return groups
        fixed = set(map(id, models[0].encoder.layer_groups()[0]))
        return [group for group in groups if id(group.parameters[0]) not in fixed] or groups

    def sampler(self, learned: Learned) -> Sampler:
        seed = counter_seed(learned.seed, "batches")
        return ContrastiveSampler(learned.inputs, learned.targets, rows=contrastive.ROWS, seed=seed)


def label_overlap(targets: Tensor) -> tuple[Tensor, Tensor]:
    """(B, B) |A and B| / |A or B| for the labels (B, X), padded with nan, of all pairs of rows, and (B, B) whether the
    pair counts: not a row with itself, and not two rows without labels."""
    # nan is not equal to itself.
    both = (targets[:, None, :, None] == targets[None, :, None, :]).sum((2, 3))
    count = (~targets.isnan()).sum(1)
    either = count[:, None] + count[None, :] - both
    others = ~torch.eye(len(targets), dtype=torch.bool, device=targets.device)
    return both / either.clamp(min=1), others & (either > 0)


def pair_loss(vectors: Tensor, targets: Tensor) -> Tensor:
    """(cosine similarity - label overlap)^2 over all pairs of a batch (SetFit; Reimers and Gurevych 2019).

    The mean over pairs with a common label and the mean over pairs without have the same weight, as in SetFit, which
    samples both equally often.

    Args:
        vectors: (B, F).
        targets: (B, X) label indices, padded with nan.
    """
    with torch.autocast(vectors.device.type, enabled=False):
        overlap, counts = label_overlap(targets)
        unit = F.normalize(precise(vectors), dim=1)
        errors = (unit @ unit.T - overlap).square()
        kinds = torch.stack([counts & (overlap > 0), counts & (overlap == 0)])
        sizes = kinds.sum((1, 2))
        means = (errors * kinds).sum((1, 2)) / sizes.clamp(min=1)
        return means.sum() / (sizes > 0).sum().clamp(min=1)


class ContrastiveSampler(ExampleSampler):
    """The same number of rows of each class in every step; if there are too many classes for two rows each, the classes
    take turns.

    Classes and the rows of a class are each read in a sequence of random permutations; rows that do not fill the last
    step of a permutation are left out of it. A row with several labels belongs to the class of each, a row without
    labels to a class of its own. A row that is due twice in a step is in its batch once."""

    def __init__(self, encoded: Sequence[Encoded], targets: Sequence[Target], *, rows: int, seed: int) -> None:
        super().__init__(encoded, targets, batch_size=rows, seed=seed)
        given = sorted({int(label) for target in targets for label in target})
        self.classes = [np.flatnonzero([label in target for target in targets]) for label in given]
        if (none := np.flatnonzero([len(target) == 0 for target in targets])).size:
            self.classes.append(none)
        #: Classes in a step, and rows of each.
        self.width = min(len(self.classes), max(1, rows // 2))
        self.depth = max(2, rows // self.width)

    def rows(self, step: int) -> NDArray[np.int64]:
        result = []
        for turn in range(step * self.width, (step + 1) * self.width):
            # Every class has one turn in a round.
            time, place = divmod(turn, len(self.classes))
            chosen = int(self._order("classes", time, len(self.classes))[place])
            members = self.classes[chosen]
            cycle, position = divmod(time, max(1, len(members) // self.depth))
            order = self._order(f"rows {chosen}", cycle, len(members))
            result.append(members[order[position * self.depth : (position + 1) * self.depth]])
        return np.unique(np.concatenate(result))

    def _order(self, purpose: str, cycle: int, size: int) -> NDArray[np.int64]:
        return counter_rng(self.seed, purpose, cycle).permutation(size)
