"""Heads: the layers of a task on top of the features, their normalisation, the loss, and the answers.

Shapes: S sequences of B rows, U units, F features in blocks of widths D_1 .. D_b, C outputs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.models.base import Batch
from components.settings.finetune import FinetuneSettings

#: `finetune.<name>.head_norm`.
Norm = Literal["fixed", "block", "length", "auto", "batch", "none"]
#: `balanced`: classes are decided as if they were equally frequent.
ClassWeight = Literal["none", "balanced"]
#: Normalisations with the statistics of the training features.
Statistics = Literal["fixed", "block", "length"]


class FixedNorm(nn.Module):
    """(x - mean) / std (stored as `deviation`) with the statistics of the training features, by `kind`:

    fixed   the std of each feature
    block   one std for all features of a block, the root of their mean variance
    length  as `block`, then each block of a text is scaled to the length sqrt(D)

    With few rows, the std of a single feature is uncertain; one std does not scale up features of small variance, which
    are mostly noise, and gives blocks of different magnitude the same mean variance. With `length`, differences in
    length, which come from properties that say nothing about the class, are removed. With `head_norm: auto`, the kind
    is chosen, and stored with the head."""

    mean: Tensor
    deviation: Tensor
    unit: Tensor

    def __init__(self, features: int, norm: Norm = "fixed") -> None:
        super().__init__()
        self.blocks, self.varies = [features], norm != "fixed"
        self.kind: Statistics = norm if norm in ("block", "length") else "fixed"
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))
        self.register_buffer("unit", torch.zeros(()), persistent=self.varies)

    def fit(self, features: Tensor) -> None:
        """Set mean and std from (N, F) features; constant features are not scaled."""
        self.mean.copy_(features.mean(0))
        self.unit.fill_(float(self.kind == "length"))
        std = features.std(0, correction=0)
        if self.kind != "fixed":
            variances = features.var(0, correction=0).split(self.blocks)
            std = torch.cat([part.mean().sqrt().expand(len(part)) for part in variances])
        self.deviation.copy_(torch.where(std > 1e-6, std, torch.ones_like(std)))

    def forward(self, features: Tensor) -> Tensor:
        """(S, F) -> (S, F)."""
        x = (features - self.mean) / self.deviation
        if not self.varies:
            return x
        parts = [nn.functional.normalize(part, dim=-1) * math.sqrt(part.shape[-1]) for part in x.split(self.blocks, -1)]
        return torch.where(self.unit > 0, torch.cat(parts, -1), x)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation; a batch of one sequence, which has no variance, is normalised by the running statistics."""

    def forward(self, features: Tensor) -> Tensor:
        """(S, F) -> (S, F)."""
        if self.training and len(features) == 1:
            return nn.functional.batch_norm(
                features, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        return super().forward(features)


def make_norm(kind: Norm, features: int) -> nn.Module:
    """The normalisation that a setting asks for."""
    if kind in ("batch", "none"):
        return BatchNorm(features) if kind == "batch" else nn.Identity()
    return FixedNorm(features, kind)


#: Smallest probability of a teacher, whose logarithm is finite.
LEAST = 1e-7


def precise(outputs: Tensor) -> Tensor:
    """Outputs in float32, or float64 if they are float64."""
    return outputs if outputs.dtype == torch.float64 else outputs.float()


class Head(nn.Module, ABC):
    """The layers of a task on top of the features of S sequences of B rows, its loss, and its answers.

    Attributes:
        penalty: weight of the L2 penalty in `loss`, for heads with one; set when the head is fitted on frozen features.
        calibration: the parameter that `calibrate` fits; None: there is none.
        decides: whether `answers` applies it.
    """

    penalty: float = 0.0
    calibration: float | None = None
    decides: bool = True

    def prepare(self, targets: Sequence[NDArray[np.float64]]) -> None:
        """Called with the N training targets before training, for statistics such as their range."""

    def fit_norm(self, vectors: Tensor) -> None:
        """Called with the (N, F) features of the training rows, for the statistics of a normalisation."""

    @abstractmethod
    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Outputs (S, C) of (S, F); for tasks that read units (S, U, C) of (S, U, F) and (S,) numbers of units."""

    def of_batch(self, features: Tensor, batch: Batch) -> Tensor:
        """`forward` with the lengths of a batch; for heads that read more of a batch."""
        return self(features, batch.get("unit_lengths"))

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The loss of a batch of `components.learners.task_models.sampler`: a scalar, averaged over the batch."""

    @abstractmethod
    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        """The answers to the B rows of a batch (see `components.data.tasks.data.Answer`)."""

    def calibrate(
        self,
        raw: list[NDArray[np.float32]],
        score: Callable[[list[NDArray[np.float32]]], NDArray[np.float64]],
    ) -> list[NDArray[np.float32]]:
        """Fit a parameter without gradient (a threshold), which is stored with the weights, to the answers to N rows
        without it; returns the answers with it. `score`: answers -> (N,) primary metric of each row."""
        return raw


def dropouts_of(settings: FinetuneSettings) -> tuple[float, float]:
    """Dropout rates before the first and the last linear layer of a head."""
    rates = settings.head_dropout if isinstance(settings.head_dropout, list) else [settings.head_dropout]
    return rates[0], rates[-1]


class TextHead(Head):
    """Normalisation, dropout, linear layer; with `hidden`, a ReLU layer in between (Howard and Ruder 2018, 3.3)."""

    def __init__(
        self,
        features: int,
        outputs: int,
        *,
        hidden: int = 0,
        dropout: float | tuple[float, float] = 0.1,
        norm: Norm = "fixed",
    ) -> None:
        super().__init__()
        before_first, before_last = dropout if isinstance(dropout, tuple) else (dropout, dropout)
        self.norm = make_norm(norm, features)
        self.chooses_norm = norm == "auto"
        self.dropout = nn.Dropout(before_first)
        self.hidden: nn.Module = nn.Identity()
        if hidden:
            between = make_norm("batch" if norm == "batch" else "none", hidden)
            self.hidden = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), between, nn.Dropout(before_last))
        self.output = nn.Linear(hidden or features, outputs)

    @classmethod
    def of(cls, settings: FinetuneSettings, features: int, outputs: int) -> Self:
        return cls(
            features, outputs, hidden=settings.head_hidden, dropout=dropouts_of(settings), norm=settings.head_norm
        )

    def fit_norm(self, vectors: Tensor) -> None:
        if isinstance(self.norm, FixedNorm):
            self.norm.fit(vectors)
        elif isinstance(self.norm, BatchNorm) and isinstance(self.norm.running_mean, Tensor):
            assert self.norm.running_var is not None
            self.norm.running_mean.copy_(vectors.mean(0))
            self.norm.running_var.copy_(vectors.var(0, correction=0))

    @property
    def norm_kinds(self) -> list[Statistics]:
        """The normalisations among which `head_norm: auto` chooses, the first at a tie; empty for other settings."""
        return ["length", "block", "fixed"] if self.chooses_norm else []

    def set_norm(self, kind: Statistics) -> None:
        """Choose the normalisation that `fit_norm` fits; only with `head_norm: auto`."""
        assert isinstance(self.norm, FixedNorm)
        self.norm.kind = kind

    def set_blocks(self, widths: Sequence[int]) -> None:
        """Set the widths of the blocks of features: pooled layers, and parts of a pair."""
        if isinstance(self.norm, FixedNorm):
            assert sum(widths) == len(self.norm.mean)
            self.norm.blocks = list(widths)

    @property
    def is_linear(self) -> bool:
        """Whether the head is a normalisation and a linear layer, so that its optimum can be computed by L-BFGS."""
        return isinstance(self.hidden, nn.Identity)

    def penalty_of(self, strength: float, targets: Sequence[NDArray[np.float64]]) -> float:
        """The `penalty` with which `loss`, a mean over N rows, has the minimum of scikit-learn's estimators on them:
        sum of the losses + strength / 2 * |w|^2, w the weights of one label. strength is 1 / C of LogisticRegression.
        """
        return strength / len(targets)

    def penalised(self, loss: Tensor) -> Tensor:
        """loss + penalty / 2 * |W|^2, W the weights of the last layer, as when the head is fitted on frozen features: a
        head that starts at the optimum has gradient 0, and the first steps change the features only."""
        return loss + self.penalty / 2 * self.output.weight.square().sum()

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(S, F) -> (S, C)."""
        return self.output(self.hidden(self.dropout(self.norm(features))))


class ImitatingHead(TextHead):
    """A head that can learn the predictions of another model (distillation: Hinton et al. 2015). A batch of rows
    without labels has the teacher's `taught` answers as `targets`, (B, X) padded with nan."""

    def taught(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        """What a student learns from these outputs, one vector per row: probabilities, or a number."""
        return self.answers(outputs, batch)

    @abstractmethod
    def imitation(self, outputs: Tensor, batch: Batch, *, temperature: float) -> Tensor:
        """T^2 times the Kullback-Leibler divergence of the outputs' distribution from the teacher's, both at
        temperature T, averaged over rows; or the mean squared error of numbers. A scalar."""


def softened(probabilities: Tensor, temperature: float) -> Tensor:
    """Logarithms of (..., C) exclusive probabilities at a temperature: log softmax(log p / T) over the last axis."""
    return (probabilities.clamp(min=LEAST).log() / temperature).log_softmax(-1)


def divergence_at(outputs: Tensor, probabilities: Tensor, temperature: float) -> Tensor:
    """T^2 KL(q || p) of each of N rows, q the (N, C) probabilities and p the softmax of the (N, C) outputs, both at
    temperature T. The factor keeps the size of the gradients (Hinton et al. 2015, section 2)."""
    wanted = softened(probabilities, temperature)
    result = (outputs / temperature).log_softmax(-1)
    return temperature**2 * (wanted.exp() * (wanted - result)).sum(-1)


class LabelHead(ImitatingHead):
    """A head with one probability per label, which can learn soft targets; `exclusive`: they add up to 1.

    Attributes:
        prior: (C,) `log_prior` that the loss adds to the outputs, so that they are decided as if all labels were
            equally frequent (logit adjustment: Menon et al. 2021); None: nothing is added. Set when the head is fitted
            on frozen features.
    """

    exclusive: ClassVar[bool]
    prior: Tensor | None = None

    @abstractmethod
    def log_prior(self, targets: Sequence[NDArray[np.float64]]) -> Tensor:
        """(C,) logits of the frequencies of the labels in N targets; 0 for labels that are equally frequent, and for a
        label of no row."""

    def weigh(self, weight: ClassWeight | None, targets: Sequence[NDArray[np.float64]]) -> None:
        """Set the prior for the loss on N targets; None: as `none`."""
        self.prior = self.log_prior(targets) if weight == "balanced" else None

    def with_prior(self, outputs: Tensor) -> Tensor:
        """(B, C) outputs as the loss reads them."""
        return outputs if self.prior is None else outputs + self.prior.to(outputs)


class ClassificationHead(LabelHead):
    """One of C classes per row; a row has one feature vector."""

    exclusive = True

    def penalty_of(self, strength: float, targets: Sequence[NDArray[np.float64]]) -> float:
        """Doubled for two labels: the square of w, their difference, is twice the sum of their squares."""
        return super().penalty_of(strength, targets) * (2 if len(np.unique(np.concatenate(targets))) == 2 else 1)

    def log_prior(self, targets: Sequence[NDArray[np.float64]]) -> Tensor:
        counts = np.bincount(np.concatenate(targets).astype(np.int64), minlength=self.output.out_features)
        return torch.from_numpy(np.log(np.where(counts > 0, counts * (counts > 0).sum() / len(targets), 1.0)))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        labels = batch["targets"][:, 0].long()
        return self.penalised(nn.functional.cross_entropy(self.with_prior(outputs.float()), labels))

    def imitation(self, outputs: Tensor, batch: Batch, *, temperature: float) -> Tensor:
        result = precise(outputs)
        return divergence_at(result, batch["targets"].to(result.dtype), temperature).mean()

    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        return list(outputs.float().softmax(1).cpu().numpy())


class RegressionHead(ImitatingHead):
    """One number per row. The targets are scaled to [0, 1] by `low` and `range` of the training rows."""

    low: Tensor
    range: Tensor

    def __init__(self, features: int, outputs: int, **shape: object) -> None:
        super().__init__(features, outputs, **shape)  # type: ignore[arg-type]
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("range", torch.ones(()))

    def prepare(self, targets: Sequence[NDArray[np.float64]]) -> None:
        values = np.asarray([target[0] for target in targets])
        self.low.fill_(float(values.min()))
        self.range.fill_(float(values.max() - values.min()) or 1.0)

    def penalty_of(self, strength: float, targets: Sequence[NDArray[np.float64]]) -> float:
        """Doubled: strength is alpha of scikit-learn's Ridge, whose squared errors have no factor 1 / 2."""
        return 2 * super().penalty_of(strength, targets)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return self.penalised(self.imitation(outputs, batch))

    def imitation(self, outputs: Tensor, batch: Batch, *, temperature: float = 1.0) -> Tensor:
        """Mean squared error of the scaled numbers; numbers have no temperature."""
        result = precise(outputs[:, 0])
        wanted = (batch["targets"][:, 0].to(result.dtype) - self.low) / self.range
        return nn.functional.mse_loss(result, wanted)

    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        """[value] of each row, on the scale of the targets; not clipped."""
        return list((self.low + self.range * outputs.float()).cpu().numpy())
