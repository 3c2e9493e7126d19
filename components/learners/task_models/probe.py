"""Training of a head on frozen-encoder features: a linear head on one vector per row is fitted to its optimum, all
others by gradient steps. Fine-tuning from a fitted head distorts the features less than from a random one (Kumar et
al. 2022)."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.data.tasks.data import Target, one_hot
from components.learners.task_models.features import FeatureTable
from components.learners.task_models.heads import (
    ClassificationHead,
    ClassWeight,
    FixedNorm,
    Head,
    LabelHead,
    Statistics,
    TextHead,
)
from components.learners.task_models.sampler import EpochSampler
from components.learners.words.linear import fit_logits
from components.models.base import Batch, Carry, Losses
from components.settings.training import Training
from components.training.loop import TrainingState, train
from components.training.optim import decayed

#: Maximum number of rows on which a head is trained; of larger splits, a sample is used.
MOST_ROWS = 20_000


class HeadCandidate(NamedTuple):
    """A candidate of the search: normalisation of the head's inputs (None: `head_norm`), L2 penalty, whether the names
    of the labels are training texts (None: not used), and the weight of the classes (None: `none`)."""

    norm: Statistics | None
    penalty: float
    names: bool | None = None
    weight: ClassWeight | None = None

    def __str__(self) -> str:
        weight = "balanced" if self.weight == "balanced" else None
        parts = [self.norm, self.penalty, "with label names" if self.names else None, weight]
        return " ".join(str(part) for part in parts if part is not None)

    @property
    def record(self) -> dict[str, Any]:
        """Entries of a run's record."""
        return {name: value for name, value in zip(RECORDED, self, strict=True) if value is not None}


#: Names of the fields in a record.
RECORDED = ("head_norm", "penalty", "label_names", "class_weight")


class HeadRows(NamedTuple):
    """Rows on which a head is trained: inputs of N rows, and N targets."""

    table: FeatureTable
    targets: Sequence[Target]


def solve_head(head: TextHead, *, rows: HeadRows, candidate: HeadCandidate, steps: int) -> None:
    """Fit a linear head of any task to the optimum of its loss: minimise the loss with the penalty
    (`TextHead.penalty_of`) by L-BFGS in float64 on the normalised features, without dropout, in at most `steps`
    iterations."""
    head.eval()
    if isinstance(head, LabelHead):
        head.weigh(candidate.weight, rows.targets)
    if candidate.norm is not None:
        assert isinstance(head.norm, FixedNorm)
        head.norm.kind = candidate.norm
    head.fit_norm(rows.table.matrix())
    head.penalty = head.penalty_of(candidate.penalty, rows.targets)
    if isinstance(head, ClassificationHead):
        _regression(head, rows, candidate.penalty, steps)
    else:
        _descent(head, rows, steps)


def _regression(head: ClassificationHead, rows: HeadRows, penalty: float, steps: int) -> None:
    """Minimise the sum of cross entropy + penalty / 2 * |W|^2 by scikit-learn's logistic regression."""
    given = one_hot(rows.targets, labels=head.output.out_features)
    with torch.inference_mode():
        x = head.norm(rows.table.matrix()).double().numpy()
    # A sample (`MOST_ROWS`) may contain only one class.
    fitted = fit_logits(x, given, c=1 / penalty, exclusive=True, steps=steps)
    with torch.no_grad():
        head.output.weight.copy_(torch.from_numpy(fitted.weights))
        head.output.bias.copy_(torch.from_numpy(fitted.intercepts))
        if head.prior is not None:
            head.output.bias.sub_(head.prior.float())


def _descent(head: TextHead, rows: HeadRows, steps: int) -> None:
    batch = rows.table.batch(np.arange(len(rows.table)), rows.targets)
    with torch.no_grad():
        x = head.norm(batch["features"]).double()
    head.output.double()
    weight, bias = head.output.weight, head.output.bias
    nn.init.zeros_(weight)
    nn.init.zeros_(bias)
    solver = torch.optim.LBFGS([weight, bias], max_iter=steps, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        weight.grad = bias.grad = None
        value = head.loss(head.output(x), batch)
        value.backward()
        return value.detach()

    with torch.enable_grad():
        solver.step(loss)
    head.output.float()


class HeadAlone(nn.Module):
    """A head as a model of the training loop, on batches of `FeatureSampler`.

    Args:
        head: the head.
        above: (features, rows) -> inputs of the head.
        mix: module with the parameters of `above`, if any.
    """

    def __init__(self, head: Head, *, above: Callable[[Tensor, Tensor], Tensor], mix: nn.Module | None = None) -> None:
        super().__init__()
        self.head = head
        self.mix = mix
        self._above = above
        # The training loop checks the mode of the top module only; without dropout in the head, training would overfit.
        self.training = head.training

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        vectors = self._above(batch["features"], batch["rows"])
        loss = self.head.loss(self.head(vectors, batch), batch)
        count = torch.tensor(len(batch["targets"]), device=loss.device)
        return Losses(loss, {"rows": (loss.detach() * count, count)})


class FeatureSampler(EpochSampler):
    """Batches of a table's N rows; rows of similar length together if the head reads units."""

    def __init__(self, table: FeatureTable, targets: Sequence[Target], *, batch_size: int, seed: int) -> None:
        # No tokens are encoded; a row counts as one.
        sizes = np.ones(len(table), dtype=np.int64)
        longest = table.longest if table.of_units else None
        super().__init__(targets, longest, sizes=sizes, batch_size=batch_size, seed=seed, purpose="features")
        self.table = table

    def inputs(self, step: int, rows: NDArray[np.int64]) -> Batch:
        return self.table.batch(rows)


def train_head(head: Head, *, rows: HeadRows, settings: Training, steps: int, seed: int) -> None:
    """Train a head on frozen-encoder features with the training loop.

    Raises:
        TrainingError: the loss is not finite.
    """
    head.fit_norm(rows.table.matrix())
    alone = HeadAlone(head, above=lambda vectors, rows: vectors)
    state = TrainingState.fresh(alone, decayed(head.parameters()), settings=settings)
    sampler = FeatureSampler(rows.table, rows.targets, batch_size=settings.batch_size, seed=seed)
    for _ in train(state, sampler, settings=settings, total_steps=steps, seed=seed):
        pass
