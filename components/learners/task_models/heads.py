"""Heads: the layers of a task on top of the features, their normalisation, the loss, and the answers.

Shapes: S sequences of B rows, U units, F features in blocks of widths D_1 .. D_b, C outputs.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.data.tasks.data import Answer, Target
from components.learners.task_models.pooling import Inside, mask
from components.models.base import Batch
from components.models.layers.host import move, on_host
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

    running_mean: Tensor
    running_var: Tensor

    def fit(self, features: Tensor) -> None:
        """Set the running statistics from (N, F) features."""
        self.running_mean.copy_(features.mean(0))
        self.running_var.copy_(features.var(0, correction=0))

    def forward(self, features: Tensor) -> Tensor:
        """(S, F) -> (S, F)."""
        if self.training and len(features) == 1:
            return nn.functional.batch_norm(
                features, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        return super().forward(features)


class NoNorm(nn.Identity):
    def fit(self, features: Tensor) -> None:
        """Nothing is learned."""


def make_norm(kind: Norm, features: int) -> FixedNorm | BatchNorm | NoNorm:
    """The normalisation that a setting asks for."""
    if kind == "batch":
        return BatchNorm(features)
    return NoNorm() if kind == "none" else FixedNorm(features, kind)


def scaled_blocks(head: nn.Module) -> list[int]:
    """Widths of the blocks of features that a head scales to one length; empty if it does not."""
    norm = getattr(head, "norm", None)
    return norm.blocks if isinstance(norm, FixedNorm) and norm.unit > 0 else []


def affine_of(norm: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Scale (F,) and offset (F,), float64, of a normalisation in evaluation; None if it changes nothing, or is no
    affine map."""
    if isinstance(norm, BatchNorm):
        scale = norm.weight.detach().double() / (norm.running_var.double() + norm.eps).sqrt()
        return scale, norm.bias.detach().double() - norm.running_mean.double() * scale
    if not isinstance(norm, FixedNorm) or norm.unit > 0:
        return None
    return 1 / norm.deviation.double(), -norm.mean.double() / norm.deviation.double()


#: Smallest probability of a teacher, whose logarithm is finite.
LEAST = 1e-7


def precise(outputs: Tensor) -> Tensor:
    """Outputs in float32, or float64 if they are float64."""
    return outputs if outputs.dtype == torch.float64 else outputs.float()


def shape_of(settings: FinetuneSettings) -> dict[str, Any]:
    """The arguments of `Head`: hidden layer, dropout rates before the first and the last linear layer, norm."""
    rates = settings.head_dropout if isinstance(settings.head_dropout, list) else [settings.head_dropout]
    return {"hidden": settings.head_hidden, "dropout": (rates[0], rates[-1]), "norm": settings.head_norm}


class Head(nn.Module):
    """The layers of a task on top of the features of S sequences of B rows, its loss, and its answers.

    The layers are a normalisation, dropout, a linear layer; with `hidden`, a ReLU layer in between (Howard and Ruder
    2018, 3.3). The outputs are the logits of M distributions of K values, of which the loss is the cross entropy,
    unless a subclass has another one. Then a head can learn the predictions of another model (distillation: Hinton et
    al. 2015): a batch of rows without labels has the teacher's `taught` answers as `targets`, (B, X) padded with nan.

    Attributes:
        penalty: weight of the L2 penalty in `loss`; set when the head is fitted on frozen features.
        prior: (C,) `log_prior` that the loss adds to the outputs, so that they are decided as if all labels were
            equally frequent (logit adjustment: Menon et al. 2021); None: nothing is added. Set when the head is fitted
            on frozen features.
        calibration: the parameter that `calibrate` fits; None: there is none.
        decides: whether `answers` applies it.
    """

    penalty: float = 0.0
    prior: Tensor | None = None
    calibration: float | None = None
    decides: bool = True
    #: Whether it has an output for each unit of a sequence.
    reads_units: ClassVar[bool] = False
    #: Number of outputs; None: one per label.
    outputs: ClassVar[int | None] = 1

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
        self.dropout = nn.Dropout(before_first)
        self.hidden: nn.Module = nn.Identity()
        if hidden:
            between = make_norm("batch" if norm == "batch" else "none", hidden)
            self.hidden = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), between, nn.Dropout(before_last))
        self.output = nn.Linear(hidden or features, outputs)

    @classmethod
    def of(cls, settings: FinetuneSettings, features: int, labels: Sequence[str]) -> Self:
        """The head of `finetune.<family>`: normalisation, dropout, one or two linear layers."""
        return cls(features, cls.outputs or len(labels), **shape_of(settings))

    def prepare(self, targets: Sequence[Target]) -> None:
        """Called with the N training targets before training, for statistics such as their range."""

    @property
    def is_linear(self) -> bool:
        """Whether the head is a normalisation and a linear layer, so that its optimum can be computed by L-BFGS. The
        units of all rows together would need too much memory."""
        return isinstance(self.hidden, nn.Identity) and not self.reads_units

    def penalty_of(self, strength: float, targets: Sequence[Target]) -> float:
        """The `penalty` with which `loss`, a mean over N rows, has the minimum of scikit-learn's estimators on them:
        sum of the losses + strength / 2 * |w|^2, w the weights of one label. strength is 1 / C of LogisticRegression.
        """
        return strength / len(targets)

    def penalised(self, loss: Tensor) -> Tensor:
        """loss + penalty / 2 * |W|^2, W the weights of the last layer, as when the head is fitted on frozen features: a
        head that starts at the optimum has gradient 0, and the first steps change the features only."""
        return loss + self.penalty / 2 * self.output.weight.square().sum()

    def log_prior(self, targets: Sequence[Target]) -> Tensor | None:
        """(C,) logits of the frequencies of the labels in N targets; 0 for labels that are equally frequent, and for a
        label of no row. None: a row has no labels with a probability each."""
        return None

    def forward(self, features: Tensor, batch: Batch | None = None) -> Tensor:
        """(S, F) -> (S, C), or (S, U, F) -> (S, U, C), 0 at padding."""
        if not self.reads_units:
            return self.output(self.hidden(self.dropout(self.norm(features))))
        assert batch is not None, "this head reads units"
        units = Inside.of(batch["unit_lengths"], features.shape[1])
        return units.put(self.output(self.hidden(self.dropout(self.norm(units.take(features))))))

    def logits(self, outputs: Tensor, batch: Batch) -> Tensor:
        """(M, K), -inf where a distribution has fewer values."""
        return outputs

    def values(self, batch: Batch) -> Tensor:
        """(M,) the labelled value of each distribution."""
        return batch["targets"][:, 0].long()

    def shares(self, batch: Batch) -> Tensor:
        """(M, K) the teacher's distributions."""
        return batch["targets"]

    def adjusted(self, outputs: Tensor) -> Tensor:
        """The outputs with the prior, in the precision of the loss."""
        outputs = precise(outputs)
        return outputs if self.prior is None else outputs + self.prior.to(outputs)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The loss of a batch of `components.learners.task_models.sampler`: a scalar, averaged over the distributions,
        plus the penalty."""
        logits = self.logits(self.adjusted(outputs), batch)
        return self.penalised(nn.functional.cross_entropy(logits, self.values(batch)))

    def imitation(self, outputs: Tensor, batch: Batch, *, temperature: float) -> Tensor:
        """T^2 times the Kullback-Leibler divergence of the outputs' distributions from the teacher's, both at
        temperature T, averaged over the distributions; or the mean squared error of numbers. A scalar. The factor keeps
        the size of the gradients (Hinton et al. 2015, section 2)."""
        logits = self.logits(precise(outputs), batch) / temperature
        outside = ~logits.isfinite()
        wanted = self.shares(batch).to(logits).nan_to_num().clamp(min=LEAST).log() / temperature
        wanted = wanted.masked_fill(outside, -torch.inf).log_softmax(-1)
        divergence = (wanted.exp() * (wanted - logits.log_softmax(-1))).masked_fill(outside, 0)
        return temperature**2 * divergence.sum(-1).mean()

    @abstractmethod
    def answers(self, outputs: Tensor, batch: Batch) -> list[Answer]:
        """The answers to the B rows of a batch (see `components.data.tasks.data.Answer`)."""

    def taught(self, outputs: Tensor, batch: Batch) -> list[Answer]:
        """What a student learns from these outputs, one vector per row: probabilities, or a number."""
        return self.answers(outputs, batch)

    def calibrate(self, raw: list[Answer], score: Callable[[list[Answer]], NDArray[np.float64]]) -> list[Answer]:
        """Fit a parameter without gradient (a threshold), which is stored with the weights, to the answers to N rows
        without it; returns the answers with it. `score`: answers -> (N,) primary metric of each row."""
        return raw


def counts_of(targets: Sequence[Target], labels: int) -> NDArray[np.int64]:
    """(C,) number of the N targets with each label."""
    return np.bincount(np.concatenate([np.zeros(0), *targets]).astype(np.int64), minlength=labels)


class ClassificationHead(Head):
    """One of C classes per row; a row has one feature vector."""

    outputs = None

    def penalty_of(self, strength: float, targets: Sequence[Target]) -> float:
        """Doubled for two labels: the square of w, their difference, is twice the sum of their squares."""
        return super().penalty_of(strength, targets) * (2 if np.count_nonzero(counts_of(targets, 0)) == 2 else 1)

    def log_prior(self, targets: Sequence[Target]) -> Tensor:
        counts = counts_of(targets, self.output.out_features)
        return torch.from_numpy(np.log(np.where(counts > 0, counts * (counts > 0).sum() / len(targets), 1.0)))

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answer]:
        return list(outputs.float().softmax(1).cpu().numpy())


class MultilabelHead(Head):
    """Independent probabilities of C labels: a distribution of two values for each row and label."""

    outputs = None

    def penalty_of(self, strength: float, targets: Sequence[Target]) -> float:
        """The penalty of any head, divided by the number of labels, because the loss is a mean over the labels too."""
        return super().penalty_of(strength, targets) / self.output.out_features

    def log_prior(self, targets: Sequence[Target]) -> Tensor:
        counts = counts_of(targets, self.output.out_features)
        varies = (counts > 0) & (counts < len(targets))
        return torch.from_numpy(np.log(np.where(varies, counts / np.maximum(1, len(targets) - counts), 1.0)))

    def logits(self, outputs: Tensor, batch: Batch) -> Tensor:
        return torch.stack([torch.zeros_like(outputs), outputs], dim=-1).flatten(0, 1)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The cross entropy of each row and label, averaged, plus the penalty."""
        outputs, targets = self.adjusted(outputs), batch["targets"]
        # The places behind the labels of a row, which are nan, mark a further column.
        columns = torch.where(targets >= 0, targets, outputs.shape[1]).long()
        given = outputs.new_zeros(len(outputs), outputs.shape[1] + 1).scatter_(1, columns, 1)[:, :-1]
        return self.penalised(nn.functional.binary_cross_entropy_with_logits(outputs, given))

    def shares(self, batch: Batch) -> Tensor:
        return torch.stack([1 - batch["targets"], batch["targets"]], dim=-1).flatten(0, 1)

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answer]:
        return list(outputs.float().sigmoid().cpu().numpy())


class ChoiceHead(Head):
    """A score of each choice, which is a sequence of its row; a softmax over the row's choices."""

    def logits(self, outputs: Tensor, batch: Batch) -> Tensor:
        counts = on_host(batch["rows"]).bincount()
        choices = Inside.of(move(counts, outputs.device), int(counts.max()))
        missing = mask(move(counts, outputs.device), int(counts.max())).logical_not()
        return choices.put(outputs)[..., 0].masked_fill(missing, -torch.inf)

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answer]:
        shares = self.logits(precise(outputs), batch).softmax(1).float().cpu().numpy()
        return [row[:count] for row, count in zip(shares, on_host(batch["rows"]).bincount().tolist(), strict=True)]


class RegressionHead(Head):
    """One number per row. The targets are scaled to [0, 1] by `low` and `range` of the training rows."""

    low: Tensor
    range: Tensor

    def __init__(self, features: int, outputs: int, **shape: Any) -> None:
        super().__init__(features, outputs, **shape)
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("range", torch.ones(()))

    def prepare(self, targets: Sequence[Target]) -> None:
        values = np.concatenate(targets)
        self.low.fill_(float(values.min()))
        self.range.fill_(float(np.ptp(values)) or 1.0)

    def penalty_of(self, strength: float, targets: Sequence[Target]) -> float:
        """Doubled: strength is alpha of scikit-learn's Ridge, whose squared errors have no factor 1 / 2."""
        return 2 * super().penalty_of(strength, targets)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return self.penalised(self.imitation(outputs, batch))

    def imitation(self, outputs: Tensor, batch: Batch, *, temperature: float = 1.0) -> Tensor:
        """Mean squared error of the scaled numbers; numbers have no temperature."""
        result = precise(outputs[:, 0])
        return nn.functional.mse_loss(result, (batch["targets"][:, 0].to(result.dtype) - self.low) / self.range)

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answer]:
        """[value] of each row, on the scale of the targets; not clipped."""
        return list((self.low + self.range * outputs).float().cpu().numpy())
