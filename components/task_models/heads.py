"""From hidden states to logits: which layers, how pooled, and the layers on top.

Shapes: S sequences of B rows, T pieces (padding included), U units, D width of a layer, F features, C outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.errors import ConfigError
from components.models.base import Batch
from components.settings.finetune import FinetuneSettings
from components.settings.names import LayerChoice

Pooling = Literal["concat", "summary", "mean", "lead", "max"]


def mask(lengths: Tensor, columns: int) -> Tensor:
    """(S,) lengths -> (S, columns) bool, true at real pieces."""
    return torch.arange(columns, device=lengths.device) < lengths[:, None]


def masked_mean(hidden: Tensor, lengths: Tensor) -> Tensor:
    """Mean over the real pieces: (S, T, D) -> (S, D), summed in float32."""
    inside = mask(lengths, hidden.shape[1])[..., None]
    return hidden.float().masked_fill(~inside, 0.0).sum(1) / lengths[:, None]


def lead_mean(hidden: Tensor, lengths: Tensor) -> Tensor:
    """Mean with weight 1 / (3 + t) at place t: (S, T, D) -> (S, D). What a text is about stands in its first words."""
    columns = hidden.shape[1]
    weights = mask(lengths, columns) / (3 + torch.arange(columns, device=hidden.device))
    return torch.einsum("btd,bt->bd", hidden.float(), weights / weights.sum(1, keepdim=True))


def masked_max(hidden: Tensor, lengths: Tensor) -> Tensor:
    """Maximum over the real pieces: (S, T, D) -> (S, D)."""
    inside = mask(lengths, hidden.shape[1])[..., None]
    return hidden.float().masked_fill(~inside, float("-inf")).amax(1)


class ScalarMix(nn.Module):
    """gamma * sum_j softmax(s)_j h_j over all layers, the embedding included (Peters et al. 2018, equation 1)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
        """L tensors (S, T, D) -> (S, T, D)."""
        weights = self.scores.softmax(0)
        mixed = torch.stack([weight * layer.float() for weight, layer in zip(weights, hidden, strict=True)]).sum(0)
        return self.gamma * mixed


class Features(nn.Module):
    """One vector a sequence from an encoder's hidden states.

    The choices `last` to `concat_last_four` are the rows of Devlin et al. 2019, table 7 (the sums there leave out the
    embedding, and so do these); `first` is the embedding; `mix` is ELMo's learned scalar mix; `all` pools the embedding
    and every layer and joins them. Pooling `concat` is ULMFiT's [last, max, mean] (Howard and Ruder 2018, section 3.3),
    where "last" is the family's own summary (the last state; both ends for a bidirectional model; the first token).

    A task that reads units gets one vector a unit instead: the chosen layers at the unit's place, joined.

    Args:
        layers: which hidden states.
        pooling: how they become one vector.
        widths: D of the embedding and of every layer, lowest first.
        summary: `LanguageModel.summary`.
        unit_states: `LanguageModel.unit_states`.

    Raises:
        ConfigError: the choice adds up layers of different widths, or wants layers above the embedding of a model
            that has none (word vectors).
    """

    def __init__(
        self,
        *,
        layers: LayerChoice,
        pooling: Pooling,
        widths: Sequence[int],
        summary: Callable[[Tensor, Tensor], Tensor],
        unit_states: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.layers = layers
        self.pooling = pooling
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
        """The chosen hidden states, each (S, T, D), from the embedding and all layers; all, where they are mixed."""
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
        """The vectors of `pooled` or `of_units` as they are; with a learned mix, the parts of the layers mixed."""
        if self.mix is None:
            return vectors
        mixed: Tensor = self.mix(vectors.chunk(len(self.mix.scores), dim=-1))
        return mixed

    def pooled(self, hidden: Sequence[Tensor], lengths: Tensor) -> Tensor:
        """L + 1 tensors (S, T, D_l) -> (S, F) float32; with a learned mix (S, (L + 1) F), a part a layer, so that what
        a frozen encoder says stays the same while the mix learns."""
        pools: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "summary": self._summary,
            "max": masked_max,
            "mean": masked_mean,
            "lead": lead_mean,
        }
        names = ("summary", "max", "mean") if self.pooling == "concat" else (self.pooling,)
        return torch.cat(
            [pools[name](layer, lengths).float() for layer in self.select(hidden) for name in names], dim=1
        )

    def of_units(self, hidden: Sequence[Tensor], units: Tensor) -> Tensor:
        """L + 1 tensors (S, T, D_l) and (S, U, 2) columns -> (S, U, F) float32; with a learned mix as `pooled`."""
        return torch.cat([self._unit_states(layer, units).float() for layer in self.select(hidden)], dim=2)


class FixedNorm(nn.Module):
    """(x - mean) / deviation with numbers set once from the training features; they do not depend on the batch."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))

    def fit(self, features: Tensor) -> None:
        """Take mean and deviation from (N, F) features; one that never varies is left as it is."""
        deviation = features.std(0, correction=0)
        self.mean.copy_(features.mean(0))
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, torch.ones_like(deviation)))

    def forward(self, features: Tensor) -> Tensor:
        """(S, F) -> (S, F)."""
        return (features - self.mean) / self.deviation


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that uses its running statistics for a batch of one text, which has no variance."""

    def forward(self, features: Tensor) -> Tensor:
        """(S, F) -> (S, F)."""
        if self.training and len(features) == 1:
            return nn.functional.batch_norm(
                features, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        return super().forward(features)


def precise(outputs: Tensor) -> Tensor:
    """At least float32, whatever the products were computed in."""
    return outputs if outputs.dtype == torch.float64 else outputs.float()


def _norm(kind: Literal["fixed", "batch", "none"], features: int) -> nn.Module:
    return {"fixed": FixedNorm, "batch": BatchNorm}.get(kind, nn.Identity)(features)


class Head(nn.Module, ABC):
    """What a task puts on top of the features of B rows' S sequences.

    Attributes:
        penalty: weight of an L2 penalty that `loss` adds, for heads that know one; the head alone sets it.
    """

    penalty: float = 0.0

    def prepare(self, targets: Sequence[NDArray[np.float64]]) -> None:
        """Told the targets of the training rows before anything is learned: their range, say."""

    def fit_norm(self, vectors: Tensor) -> None:
        """Told the (N, F) features of the training rows, for the statistics of a normalisation."""

    @abstractmethod
    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Features of sequences to what the task makes answers of.

        Args:
            features: (S, F); or, of tasks that read units, (S, U, F).
            lengths: (S,) units of each sequence, of the latter.

        Returns:
            (S, C), or (S, U, C).
        """

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The mean over a batch of `components.task_models.sampler`, with `targets`: a scalar."""

    @abstractmethod
    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        """What is said of each of the batch's B rows (see `tasks.base.Answer`)."""

    def calibrate(
        self,
        answer: Callable[[], list[NDArray[np.float32]]],
        score: Callable[[list[NDArray[np.float32]]], NDArray[np.float64]],
    ) -> list[NDArray[np.float32]]:
        """Choose on dev what is not learned by gradients (a threshold); kept with the weights that it was chosen for.

        Args:
            answer: the answers for dev by the head as it is.
            score: answers for dev -> (N,) the deciding score of each.

        Returns:
            The answers for dev by what was chosen.
        """
        return answer()


class TextHead(Head):
    """Normalisation, dropout, linear; with `hidden`, a ReLU layer of that width before (Howard and Ruder 2018, 3.3).

    Args:
        features: F.
        outputs: C.
        hidden: width of the layer between, 0 for none.
        dropout: before each linear layer.
        norm: `batch`, `fixed` (statistics of the training features) or `none`; a hidden layer gets `batch` or none.
    """

    def __init__(
        self,
        features: int,
        outputs: int,
        *,
        hidden: int = 0,
        dropout: float = 0.1,
        norm: Literal["fixed", "batch", "none"] = "fixed",
    ) -> None:
        super().__init__()
        self.norm = _norm(norm, features)
        self.dropout = nn.Dropout(dropout)
        self.hidden: nn.Module = nn.Identity()
        if hidden:
            between = _norm("batch" if norm == "batch" else "none", hidden)
            self.hidden = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), between, nn.Dropout(dropout))
        self.output = nn.Linear(hidden or features, outputs)

    @classmethod
    def of(cls, settings: FinetuneSettings, features: int, outputs: int) -> Self:
        """As `finetune.<family>` says."""
        return cls(
            features, outputs, hidden=settings.head_hidden, dropout=settings.head_dropout, norm=settings.head_norm
        )

    def fit_norm(self, vectors: Tensor) -> None:
        """Give the normalisation the statistics of the training features."""
        if isinstance(self.norm, FixedNorm):
            self.norm.fit(vectors)
        elif isinstance(self.norm, BatchNorm) and isinstance(self.norm.running_mean, Tensor):
            assert self.norm.running_var is not None
            self.norm.running_mean.copy_(vectors.mean(0))
            self.norm.running_var.copy_(vectors.var(0, correction=0))

    @property
    def is_linear(self) -> bool:
        """Whether nothing but a normalisation and a linear layer learns, so that its best weights can be solved for."""
        return isinstance(self.hidden, nn.Identity)

    def penalised(self, loss: Tensor) -> Tensor:
        """loss + penalty / 2 * |W|^2 of the last layer W.

        So the head alone and the whole minimise the same thing: where the former stands at its optimum, the latter
        begins without a push on the head, and learns by moving the features.
        """
        return loss + self.penalty / 2 * self.output.weight.square().sum()

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(S, F) -> (S, C)."""
        outputs: Tensor = self.output(self.hidden(self.dropout(self.norm(features))))
        return outputs


class ClassificationHead(TextHead):
    """One of C classes a row; a row is one sequence, or its sequences were combined."""

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Mean cross entropy, and the penalty."""
        return self.penalised(nn.functional.cross_entropy(outputs.float(), batch["targets"][:, 0].long()))

    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        """Probabilities (C,) of each row."""
        return list(outputs.float().softmax(1).cpu().numpy())
