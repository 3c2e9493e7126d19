"""Training of a head on frozen-encoder features.

A linear head on one vector per row is fitted to its optimum: multinomial logistic regression for classification, L-BFGS
on the task's loss otherwise. All other heads are trained by gradient steps.

Fine-tuning that starts from a fitted head distorts the features less than from a random head (Kumar et al. 2022,
"Fine-tuning can distort pretrained features and underperform out-of-distribution").
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from components.finetuning.features import FeatureTable, head_answers
from components.models.base import Batch, Carry, Losses
from components.settings.training import Training
from components.task_models.heads import ClassificationHead, Head, Statistics, TextHead
from components.task_models.model import cloned_state
from components.task_models.sampler import EpochSampler
from components.tasks.data import Answer, Target
from components.training.loop import TrainingState, train
from components.training.optim import decayed

#: Maximum number of rows on which a head is trained; of larger splits, a sample is used.
MOST_ROWS = 20_000

Score = Callable[[NDArray[np.float32]], float]


class HeadCandidate(NamedTuple):
    """A candidate of the search.

    Attributes:
        norm: normalisation of the head's inputs; None: that of the settings.
        penalty: L2 penalty.
        names: whether the names of the labels are training texts; None: the run does not use them.
    """

    norm: Statistics | None
    penalty: float
    names: bool | None = None

    def __str__(self) -> str:
        parts = [self.norm, self.penalty, "with label names" if self.names else None]
        return " ".join(str(part) for part in parts if part is not None)


class HeadRows(NamedTuple):
    """Rows on which a head is trained: inputs of N rows, and N targets."""

    table: FeatureTable
    targets: Sequence[Target]

    @property
    def labels(self) -> NDArray[np.int64]:
        """(N,) indices of the labels, of kinds with one label."""
        return np.asarray([target[0] for target in self.targets], dtype=np.int64)


@dataclass(frozen=True)
class Probe:
    """Result of the search over L2 penalties.

    Attributes:
        penalty: the best one.
        score: its metric on dev.
        scores: penalty -> metric on dev.
    """

    penalty: float
    score: float
    scores: dict[float, float]


def fit_head(
    head: ClassificationHead,
    *,
    features: Tensor,
    labels: NDArray[np.int64],
    dev: Tensor | None,
    score: Score,
    penalties: Sequence[float],
    steps: int,
) -> Probe:
    """Fit a head without hidden layer by logistic regression; the L2 penalty is selected on dev.

    Minimises sum of cross entropy + penalty / 2 * |W|^2 by L-BFGS on the head's normalised features; ties go to the
    larger penalty.

    Args:
        head: its normalisation, output layer and penalty are set.
        features: (N, F) of the training rows.
        labels: (N,) indices.
        dev: (M, F) features of dev; None with one penalty.
        score: (M, C) probabilities -> metric, higher is better.
        penalties: candidates.
        steps: maximum number of L-BFGS iterations.
    """
    head.fit_norm(features)
    head.eval()
    with torch.inference_mode():
        x = head.norm(features).double().numpy()
        x_dev = None if dev is None else head.norm(dev)
    found: list[tuple[float, float, Tensor, Tensor]] = []
    for penalty in sorted(penalties, reverse=True):
        weight, bias = _regression(x, labels, classes=head.output.out_features, penalty=penalty, steps=steps)
        on_dev = 0.0
        if x_dev is not None:
            on_dev = score(torch.nn.functional.linear(x_dev, weight, bias).softmax(1).numpy())
        found.append((on_dev, penalty, weight, bias))
    best = max(found, key=lambda entry: entry[0])
    with torch.no_grad():
        head.output.weight.copy_(best[2])
        head.output.bias.copy_(best[3])
    head.penalty = head.penalty_of(best[1], list(labels[:, None].astype(np.float64)))
    return Probe(best[1], best[0], {} if dev is None else {entry[1]: entry[0] for entry in found})


def _regression(
    x: NDArray[np.float64], labels: NDArray[np.int64], *, classes: int, penalty: float, steps: int
) -> tuple[Tensor, Tensor]:
    known = np.unique(labels)
    # A sample (`MOST_ROWS`) may contain only one class, which is then always predicted.
    weight, bias = np.zeros((1, x.shape[1])), np.zeros(1)
    if len(known) > 1:
        regression = LogisticRegression(C=1 / penalty, max_iter=steps, tol=1e-4)
        with warnings.catch_warnings():
            # Reaching the maximum number of iterations is not an error.
            warnings.simplefilter("ignore", ConvergenceWarning)
            regression.fit(x, labels)
        weight, bias = regression.coef_, regression.intercept_
    if len(known) == 2:
        # For two classes scikit-learn returns the log-odds of the second.
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    # Classes without rows get a low bias.
    full_weight, full_bias = torch.zeros(classes, x.shape[1]), torch.full((classes,), float(bias.min()) - 1)
    rows = torch.from_numpy(known)
    full_weight[rows] = torch.from_numpy(weight).float()
    full_bias[rows] = torch.from_numpy(bias).float()
    return full_weight, full_bias


def solve_head(
    head: TextHead,
    *,
    table: FeatureTable,
    targets: Sequence[Target],
    dev: FeatureTable | None,
    score: Callable[[Sequence[Answer]], float],
    penalties: Sequence[float],
    steps: int,
) -> Probe:
    """Fit a linear head of any task to the optimum of its loss; the L2 penalty is selected on dev.

    Minimises the loss with each penalty (`TextHead.penalty_of`) by L-BFGS in float64 on the normalised features,
    without dropout; ties go to the larger penalty.

    Args:
        head: its normalisation, output layer and penalty are set.
        table: features of N training rows.
        targets: N vectors.
        dev: features of dev; None with one penalty.
        score: answers on dev -> metric, higher is better.
        penalties: candidates.
        steps: maximum number of L-BFGS iterations.
    """
    head.fit_norm(table.matrix())
    head.eval()
    batch = table.batch(np.arange(len(table)), targets)
    with torch.no_grad():
        x = head.norm(batch["features"]).double()
    found: list[tuple[float, float, dict[str, Tensor]]] = []
    weight, bias = head.output.weight, head.output.bias
    for penalty in sorted(penalties, reverse=True):
        head.penalty = head.penalty_of(penalty, targets)
        head.output.double()
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
        on_dev = 0.0 if dev is None else score(head_answers(head, dev))
        found.append((on_dev, penalty, cloned_state(head.output)))
    best = max(found, key=lambda entry: entry[0])
    head.output.load_state_dict(best[2])
    head.penalty = head.penalty_of(best[1], targets)
    return Probe(best[1], best[0], {} if dev is None else {entry[1]: entry[0] for entry in found})


def search_head(
    head: TextHead,
    *,
    rows: Callable[[bool | None], HeadRows],
    dev: FeatureTable | None,
    score: Callable[[Sequence[Answer]], float],
    candidates: Sequence[HeadCandidate],
    steps: int,
) -> tuple[HeadCandidate, dict[HeadCandidate, float]]:
    """Solve a head with the best candidate on dev, the first at a tie.

    Args:
        head: its normalisation, output layer and penalty are set.
        rows: (`HeadCandidate.names`) -> the training rows.
        dev: features of dev; None with one candidate.
        score: answers on dev -> metric, higher is better.
        candidates: those that differ only in the penalty next to each other.
        steps: maximum number of L-BFGS iterations.

    Returns:
        The best candidate, and the metric of each; no metrics without dev.
    """
    found: list[tuple[float, HeadCandidate, dict[str, Tensor], float]] = []
    scores: dict[HeadCandidate, float] = {}
    for (names, norm), group in itertools.groupby(candidates, key=lambda candidate: (candidate.names, candidate.norm)):
        table, targets = learned = rows(names)
        if norm is not None:
            head.set_norm(norm)
        penalties = [candidate.penalty for candidate in group]
        if isinstance(head, ClassificationHead):
            probe = fit_head(
                head,
                features=table.matrix(),
                labels=learned.labels,
                dev=None if dev is None else dev.matrix(),
                score=lambda answers: score(list(answers)),
                penalties=penalties,
                steps=steps,
            )
        else:
            probe = solve_head(
                head, table=table, targets=targets, dev=dev, score=score, penalties=penalties, steps=steps
            )
        scores |= {HeadCandidate(norm, penalty, names): value for penalty, value in probe.scores.items()}
        found.append((probe.score, HeadCandidate(norm, probe.penalty, names), cloned_state(head), head.penalty))
    _, best, state, head.penalty = max(found, key=lambda entry: entry[0])
    if len(found) > 1:
        if best.norm is not None:
            head.set_norm(best.norm)
        head.load_state_dict(state)
    return best, scores


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

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        """The head's loss on a batch of features."""
        vectors = self._above(batch["features"], batch["rows"])
        loss = self.head.loss(self.head.of_batch(vectors, batch), batch)
        count = torch.tensor(len(batch["targets"]), device=loss.device)
        return Losses(loss, {"rows": (loss.detach() * count, count)})


class FeatureSampler(EpochSampler):
    """Batches of a table's rows; rows of similar length together if the head reads units.

    Args:
        table: features of N rows.
        targets: N vectors.
    """

    def __init__(self, table: FeatureTable, targets: Sequence[Target], *, batch_size: int, seed: int) -> None:
        # No tokens are encoded; a row counts as one.
        sizes = np.ones(len(table), dtype=np.int64)
        super().__init__(table.longest(), sizes=sizes, batch_size=batch_size, seed=seed, purpose="features")
        self.table, self.targets = table, targets

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of a step, or the part of it on one rank."""
        rows = self.rows(step)[rank::world]
        return self.table.batch(rows, [self.targets[row] for row in rows])


def train_head(
    head: Head,
    *,
    table: FeatureTable,
    targets: Sequence[Target],
    settings: Training,
    steps: int,
    seed: int,
) -> None:
    """Train a head on frozen-encoder features with the training loop.

    Raises:
        TrainingError: the loss is not finite.
    """
    head.fit_norm(table.matrix())
    alone = HeadAlone(head, above=lambda vectors, rows: vectors)
    state = TrainingState.fresh(alone, decayed(head.parameters()), settings=settings)
    sampler = FeatureSampler(table, targets, batch_size=settings.batch_size, seed=seed)
    for _ in train(state, sampler, settings=settings, total_steps=steps, seed=seed):
        pass
