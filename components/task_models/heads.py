"""From hidden states to logits: choice of layers, pooling, and the layers of the head.

Shapes: S sequences of B rows, T pieces (padding included), U units, D width of a layer, F features, C outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.errors import ConfigError
from components.models.base import Batch
from components.settings.finetune import FinetuneSettings
from components.settings.names import LayerChoice
from components.task_models.norms import BatchNorm, BlockNorm, FixedNorm, Norm, Statistics, make_norm

#: Smallest probability of a teacher, whose logarithm is finite.
LEAST = 1e-7
Pooling = Literal["concat", "summary", "mean", "lead", "max"]


def mask(lengths: Tensor, columns: int) -> Tensor:
    """(S,) lengths -> (S, columns) bool: true at pieces, false at padding."""
    return torch.arange(columns, device=lengths.device) < lengths[:, None]


def masked_mean(hidden: Tensor, lengths: Tensor) -> Tensor:
    """Mean over the pieces without padding, in float32: (S, T, D) -> (S, D)."""
    inside = mask(lengths, hidden.shape[1])[..., None]
    return hidden.float().masked_fill(~inside, 0.0).sum(1) / lengths[:, None]


def lead_mean(hidden: Tensor, lengths: Tensor) -> Tensor:
    """Mean with weight 1 / (3 + t) at position t, which favours the beginning of a text: (S, T, D) -> (S, D)."""
    columns = hidden.shape[1]
    weights = mask(lengths, columns) / (3 + torch.arange(columns, device=hidden.device))
    return torch.einsum("btd,bt->bd", hidden.float(), weights / weights.sum(1, keepdim=True))


def masked_max(hidden: Tensor, lengths: Tensor) -> Tensor:
    """Maximum over the pieces without padding: (S, T, D) -> (S, D)."""
    inside = mask(lengths, hidden.shape[1])[..., None]
    return hidden.float().masked_fill(~inside, float("-inf")).amax(1)


class ScalarMix(nn.Module):
    """gamma * sum_j softmax(s)_j h_j over the embedding and all layers (Peters et al. 2018, equation 1)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
        """L hidden states (S, T, D) -> (S, T, D)."""
        weights = self.scores.softmax(0)
        mixed = torch.stack([weight * layer.float() for weight, layer in zip(weights, hidden, strict=True)]).sum(0)
        return self.gamma * mixed


class Features(nn.Module):
    """One vector per sequence from an encoder's hidden states.

    The choices `last` to `concat_last_four` are the rows of Devlin et al. 2019, table 7 (the sums exclude the
    embedding); `first` is the embedding; `mix` is ELMo's learned scalar mix; `all` pools the embedding and every layer
    separately and concatenates the results. Pooling `concat` is ULMFiT's [last, max, mean] (Howard and Ruder 2018,
    section 3.3), where "last" is the family's summary (the last state; both ends for a bidirectional model; the first
    token).

    For tasks that read units there is one vector per unit: the unit states of the chosen layers, concatenated.

    Args:
        layers: choice of hidden states.
        pooling: of the pieces of a sequence.
        unit_length: whether each pooled vector is scaled to length 1.
        widths: D of the embedding and of every layer, lowest first.
        summary: `LanguageModel.summary`.
        unit_states: `LanguageModel.unit_states`.

    Raises:
        ConfigError: the choice adds up layers of different widths, or needs layers above the embedding and the model
            (word vectors) has none.
    """

    def __init__(
        self,
        *,
        layers: LayerChoice,
        pooling: Pooling,
        unit_length: bool = False,
        widths: Sequence[int],
        summary: Callable[[Tensor, Tensor], Tensor],
        unit_states: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.layers = layers
        self.pooling = pooling
        self.unit_length = unit_length
        self._summary = summary
        self._unit_states = unit_states
        if len(widths) == 1 and layers in ("second_to_last", "sum", "sum_last_four", "concat_last_four"):
            raise ConfigError(f"layers: {layers!r} needs layers above the embedding, and there are none; choose last")
        added = {"sum": widths[1:], "sum_last_four": widths[1:][-4:], "mix": widths}.get(layers, ())
        if len(set(added)) > 1:
            raise ConfigError(
                f"layers: {layers!r} adds up layers, but they are {', '.join(map(str, added))} wide; "
                "choose all, concat_last_four or last, or equal widths in the model"
            )
        self.mix = ScalarMix(len(widths)) if layers == "mix" else None

    def select(self, hidden: Sequence[Tensor]) -> list[Tensor]:
        """The chosen hidden states, each (S, T, D); all of them for `mix` and `all`."""
        above = hidden[1:]
        match self.layers:
            case "last":
                return [hidden[-1]]
            case "second_to_last":
                return [hidden[-2]]
            case "first":
                return [hidden[0]]
            case "sum":
                return [torch.stack(list(above)).sum(0)]
            case "sum_last_four":
                return [torch.stack(list(above[-4:])).sum(0)]
            case "concat_last_four":
                return list(above[-4:])
            case _:
                return list(hidden)

    def forward(self, hidden: Sequence[Tensor], lengths: Tensor) -> Tensor:
        """L + 1 tensors (S, T, D_l) -> (S, F) float32."""
        return self.mixed(self.pooled(hidden, lengths))

    def mixed(self, vectors: Tensor) -> Tensor:
        """The vectors of `pooled` or `of_units`; with `mix`, the weighted sum of the layers' parts."""
        if self.mix is None:
            return vectors
        mixed: Tensor = self.mix(vectors.chunk(len(self.mix.scores), dim=-1))
        return mixed

    def pooled(self, hidden: Sequence[Tensor], lengths: Tensor) -> Tensor:
        """L + 1 tensors (S, T, D_l) -> (S, F) float32; with `mix` (S, (L + 1) F), one part per layer, so that
        frozen-encoder features do not depend on the weights of the mix."""
        pools: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "summary": self._summary,
            "max": masked_max,
            "mean": masked_mean,
            "lead": lead_mean,
        }
        names = ("summary", "max", "mean") if self.pooling == "concat" else (self.pooling,)
        return self.joined([pools[name](layer, lengths).float() for layer in self.select(hidden) for name in names])

    def joined(self, parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
        """Vectors (S, D_i) of each layer and pool -> (S, F), each scaled to length 1 with `unit_length`."""
        return torch.cat([nn.functional.normalize(part, dim=1) for part in parts] if self.unit_length else parts, dim=1)

    def block_widths(self, hidden: Sequence[Tensor], *, units: bool) -> list[int]:
        """Widths of the blocks of a vector: the pools of each chosen layer, or with `units` the layers."""
        pools = 3 if self.pooling == "concat" and not units else 1
        layers = [hidden[0]] if self.layers == "mix" else self.select(hidden)
        return [layer.shape[-1] for layer in layers for _ in range(pools)]

    def of_units(self, hidden: Sequence[Tensor], units: Tensor) -> Tensor:
        """L + 1 tensors (S, T, D_l) and (S, U, 2) columns -> (S, U, F) float32; with `mix` as in `pooled`."""
        return torch.cat([self._unit_states(layer, units).float() for layer in self.select(hidden)], dim=2)


def precise(outputs: Tensor) -> Tensor:
    """Outputs in float32, or float64 if they are float64."""
    return outputs if outputs.dtype == torch.float64 else outputs.float()


class Head(nn.Module, ABC):
    """The layers of a task on top of the features of S sequences of B rows, its loss, and its answers.

    Attributes:
        penalty: weight of the L2 penalty in `loss`, for heads with one; set when the head is fitted on frozen features.
    """

    penalty: float = 0.0

    def prepare(self, targets: Sequence[NDArray[np.float64]]) -> None:
        """Called with the N training targets before training, for statistics such as their range."""

    def fit_norm(self, vectors: Tensor) -> None:
        """Called with the (N, F) features of the training rows, for the statistics of a normalisation."""

    @abstractmethod
    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Outputs from which `loss` and `answers` are computed.

        Args:
            features: (S, F); (S, U, F) for tasks that read units.
            lengths: (S,) number of units, for these tasks.

        Returns:
            (S, C), or (S, U, C).
        """

    def of_batch(self, features: Tensor, batch: Batch) -> Tensor:
        """`forward` with the lengths of a batch; for heads that read more of a batch."""
        outputs: Tensor = self(features, batch.get("unit_lengths"))
        return outputs

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The loss of a batch of `components.task_models.sampler` with `targets`: a scalar, averaged over the batch."""

    @abstractmethod
    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        """The answers to the B rows of a batch (see `components.tasks.data.Answer`)."""

    def calibrate(
        self,
        answer: Callable[[], list[NDArray[np.float32]]],
        score: Callable[[list[NDArray[np.float32]]], NDArray[np.float64]],
    ) -> list[NDArray[np.float32]]:
        """Fit parameters without gradient (a threshold) on dev; they are stored with the weights.

        Args:
            answer: computes the current answers on dev.
            score: answers on dev -> (N,) primary metric of each row.

        Returns:
            The answers on dev with the fitted parameters.
        """
        return answer()


class TextHead(Head):
    """Normalisation, dropout, linear layer; with `hidden`, a ReLU layer in between (Howard and Ruder 2018, 3.3).

    Args:
        features: F.
        outputs: C.
        hidden: width of the hidden layer; 0: none.
        dropout: rate before each linear layer.
        smoothing: label smoothing in training, for kinds with labels of rows.
        norm: `finetune.<name>.head_norm`; a hidden layer gets `batch` or none.
    """

    def __init__(
        self,
        features: int,
        outputs: int,
        *,
        hidden: int = 0,
        dropout: float = 0.1,
        norm: Norm = "fixed",
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.norm = make_norm(norm, features)
        self.chooses_norm = norm == "auto"
        self.dropout = nn.Dropout(dropout)
        self.hidden: nn.Module = nn.Identity()
        if hidden:
            between = make_norm("batch" if norm == "batch" else "none", hidden)
            self.hidden = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), between, nn.Dropout(dropout))
        self.output = nn.Linear(hidden or features, outputs)

    @classmethod
    def of(cls, settings: FinetuneSettings, features: int, outputs: int) -> Self:
        """A head with the settings of `finetune.<family>`."""
        return cls(
            features,
            outputs,
            hidden=settings.head_hidden,
            dropout=settings.head_dropout,
            norm=settings.head_norm,
            smoothing=settings.label_smoothing,
        )

    def fit_norm(self, vectors: Tensor) -> None:
        """Set the statistics of the normalisation to those of the training features."""
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
        assert isinstance(self.norm, BlockNorm)
        self.norm.kind = kind

    def set_blocks(self, widths: Sequence[int]) -> None:
        """Set the widths of the blocks of features: pooled layers, and parts of a pair."""
        if isinstance(self.norm, BlockNorm):
            assert sum(widths) == len(self.norm.mean)
            self.norm.blocks = list(widths)

    @property
    def is_linear(self) -> bool:
        """Whether the head is a normalisation and a linear layer, so that its optimum can be computed by L-BFGS."""
        return isinstance(self.hidden, nn.Identity)

    def penalised(self, loss: Tensor) -> Tensor:
        """loss + penalty / 2 * |W|^2, W the weights of the last layer.

        The objective is the same as when the head is fitted on frozen features. If the head starts at its optimum,
        its gradient is 0 and the first steps change the features only.
        """
        return loss + self.penalty / 2 * self.output.weight.square().sum()

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(S, F) -> (S, C)."""
        outputs: Tensor = self.output(self.hidden(self.dropout(self.norm(features))))
        return outputs


class CalibratedHead(TextHead):
    """A head with a parameter that `calibrate` fits.

    Attributes:
        decides: whether `answers` applies the parameter; false gives the answers from which it can be fitted.
    """

    decides: bool = True

    @property
    @abstractmethod
    def calibration(self) -> float:
        """The parameter."""

    @abstractmethod
    def set_calibration(self, value: float) -> None:
        """Set the parameter to one that another instance has fitted."""


class ImitatingHead(TextHead):
    """A head that can learn the predictions of another model (distillation: Hinton et al. 2015).

    A batch of rows without labels has the teacher's `taught` answers as `targets`, (B, X) padded with nan.
    """

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
    found = (outputs / temperature).log_softmax(-1)
    return temperature**2 * (wanted.exp() * (wanted - found)).sum(-1)


class LabelHead(ImitatingHead):
    """A head with one probability per label, which can learn soft targets.

    Attributes:
        exclusive: whether the probabilities of a row add up to 1.
    """

    exclusive: ClassVar[bool]

    @abstractmethod
    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        """Symmetric Kullback-Leibler divergence between two outputs for the same rows (R-Drop): a scalar."""


class ClassificationHead(LabelHead):
    """One of C classes per row; a row has one feature vector."""

    exclusive = True

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Mean cross entropy, with label smoothing in training, plus the penalty."""
        smoothing = self.smoothing if self.training else 0.0
        labels = batch["targets"][:, 0].long()
        return self.penalised(nn.functional.cross_entropy(outputs.float(), labels, label_smoothing=smoothing))

    def imitation(self, outputs: Tensor, batch: Batch, *, temperature: float) -> Tensor:
        """`divergence_at` of the labels, averaged over rows."""
        found = precise(outputs)
        return divergence_at(found, batch["targets"].to(found.dtype), temperature).mean()

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        """(KL(p || q) + KL(q || p)) / 2, averaged over rows."""
        logs, others = first.float().log_softmax(1), second.float().log_softmax(1)
        return ((logs.exp() - others.exp()) * (logs - others)).sum(1).mean() / 2

    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        """Probabilities (C,) of each row."""
        return list(outputs.float().softmax(1).cpu().numpy())
