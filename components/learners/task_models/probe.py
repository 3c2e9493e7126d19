"""Training of a head on frozen-encoder features: a linear head on one vector per row is fitted to its optimum, all
others by gradient steps. Fine-tuning from a fitted head distorts the features less than from a random one (Kumar et
al. 2022)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from components.data.tasks.data import Target, one_hot
from components.learners.task_models.base import Encoded
from components.learners.task_models.heads import ClassificationHead, ClassWeight, FixedNorm, Head, Statistics
from components.learners.task_models.model import Objective
from components.learners.task_models.sampler import ExampleSampler, collate, matrix
from components.learners.words.linear import fit_logits
from components.settings.training import Training
from components.training.loop import TrainingState, train
from components.training.optim import decayed

#: Maximum number of rows on which a head is trained; of larger splits, a sample is used.
MOST_ROWS = 20_000


class HeadCandidate(NamedTuple):
    """A candidate of the search: normalisation of the head's inputs (None: that of the settings), L2 penalty, whether
    the names of the labels are training texts (None: not used), and the weight of the classes (None: `none`)."""

    head_norm: Statistics | None
    penalty: float
    label_names: bool | None = None
    class_weight: ClassWeight | None = None

    def __str__(self) -> str:
        weight = "balanced" if self.class_weight == "balanced" else None
        parts = [self.head_norm, self.penalty, "with label names" if self.label_names else None, weight]
        return " ".join(str(part) for part in parts if part is not None)

    @property
    def record(self) -> dict[str, Any]:
        """Entries of a run's record."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class HeadRows(NamedTuple):
    """Rows on which a head is trained: N inputs, and N targets."""

    inputs: Sequence[Encoded]
    targets: Sequence[Target]


def solve_head(head: Head, *, rows: HeadRows, candidate: HeadCandidate, steps: int) -> None:
    """Fit a linear head of any task to the optimum of its loss: minimise the loss with the penalty
    (`Head.penalty_of`) by L-BFGS in float64 on the normalised features, without dropout, in at most `steps`
    iterations."""
    head.eval()
    head.prior = head.log_prior(rows.targets) if candidate.class_weight == "balanced" else None
    if candidate.head_norm is not None:
        assert isinstance(head.norm, FixedNorm)
        head.norm.kind = candidate.head_norm
    head.norm.fit(matrix(rows.inputs))
    head.penalty = head.penalty_of(candidate.penalty, rows.targets)
    if isinstance(head, ClassificationHead):
        _regression(head, rows, candidate.penalty, steps)
    else:
        _descent(head, rows, steps)


def _regression(head: ClassificationHead, rows: HeadRows, penalty: float, steps: int) -> None:
    """Minimise the sum of cross entropy + penalty / 2 * |W|^2 by scikit-learn's logistic regression."""
    given = one_hot(rows.targets, labels=head.output.out_features)
    with torch.inference_mode():
        x = head.norm(matrix(rows.inputs)).double().numpy()
    # A sample (`MOST_ROWS`) may contain only one class.
    fitted = fit_logits(x, given, c=1 / penalty, exclusive=True, steps=steps)
    with torch.no_grad():
        head.output.weight.copy_(torch.from_numpy(fitted.weights))
        head.output.bias.copy_(torch.from_numpy(fitted.intercepts))
        if head.prior is not None:
            head.output.bias.sub_(head.prior.float())


def _descent(head: Head, rows: HeadRows, steps: int) -> None:
    batch = collate(rows.inputs, rows.targets)
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


def train_head(head: Head, *, rows: HeadRows, settings: Training, steps: int, seed: int) -> None:
    """Train a head on frozen-encoder features with the training loop.

    Raises:
        TrainingError: the loss is not finite.
    """
    head.norm.fit(matrix(rows.inputs))
    alone = Objective([head], lambda batch: head.loss(head(batch["features"], batch), batch))
    state = TrainingState.fresh(alone, decayed(head.parameters()), settings=settings)
    sampler = ExampleSampler(rows.inputs, rows.targets, batch_size=settings.batch_size, seed=seed)
    for _ in train(state, sampler, settings=settings, total_steps=steps, seed=seed):
        pass
