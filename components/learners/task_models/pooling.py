"""From hidden states to the features of a head: choice of layers, and pooling.

Shapes: S sequences, T pieces (padding included), U units, D width of a layer, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from components.core.errors import ConfigError
from components.models.base import LanguageModel
from components.models.layers.host import on_host, places
from components.models.sentence import pooled
from components.settings.finetune import ReadingSettings

Pooling = Literal["concat", "summary", "mean", "lead", "max", "trained"]


def mask(lengths: Tensor, columns: int) -> Tensor:
    """(S,) lengths -> (S, columns) bool: true at pieces, false at padding."""
    return torch.arange(columns, device=lengths.device) < lengths[:, None]


@dataclass(frozen=True)
class Inside:
    """The pieces or units of padded sequences, one after the other."""

    indices: tuple[Tensor, ...]
    shape: tuple[int, int]

    @classmethod
    def of(cls, lengths: Tensor, columns: int) -> Inside:
        """The pieces or units of sequences of (S,) lengths, padded to U = `columns`."""
        return cls(places(mask(on_host(lengths), columns), lengths.device), (len(lengths), columns))

    def take(self, padded: Tensor) -> Tensor:
        """(S, U, ...) -> (N, ...)."""
        return padded[self.indices]

    def put(self, vectors_NX: Tensor) -> Tensor:
        """(N, X) -> (S, U, X), 0 at padding."""
        padded = vectors_NX.new_zeros(*self.shape, vectors_NX.shape[-1])
        padded[self.indices] = vectors_NX
        return padded


def lead_mean(hidden: Tensor, lengths: Tensor) -> Tensor:
    """Mean with weight 1 / (3 + t) at position t, which favours the beginning of a text: (S, T, D) -> (S, D)."""
    columns = hidden.shape[1]
    weights = mask(lengths, columns) / (3 + torch.arange(columns, device=hidden.device))
    return torch.einsum("btd,bt->bd", hidden.float(), weights / weights.sum(1, keepdim=True))


class ScalarMix(nn.Module):
    """gamma * sum_j softmax(s)_j h_j over the embedding and all layers of width D (Peters et al. 2018, equation 1).
    `static`: width of the word vectors at the beginning of every layer's state, which are left as they are."""

    def __init__(self, layers: int, *, static: int = 0, width: int = 0) -> None:
        super().__init__()
        self.static, self.width = static, width
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
        """L hidden states (S, T, D), or pools of them side by side (S, P * D) -> the same shape."""
        weights = self.scores.softmax(0)
        mixed = torch.stack([weight * layer.float() for weight, layer in zip(weights, hidden, strict=True)]).sum(0)
        if not self.static:
            return self.gamma * mixed
        blocks = mixed.unflatten(-1, (-1, self.width))
        scaled = self.gamma * blocks[..., self.static :]
        return torch.cat([blocks[..., : self.static], scaled], dim=-1).flatten(-2)


class Features(nn.Module):
    """One vector per sequence from an encoder's hidden states.

    The choices `last` to `concat_last_four` are the rows of Devlin et al. 2019, table 7 (the sums exclude the
    embedding); `first` is the embedding; `mix` is ELMo's learned scalar mix; `all` pools the embedding and every layer
    separately and concatenates the results. Pooling `concat` is ULMFiT's [last, max, mean] (Howard and Ruder 2018,
    section 3.3), where "last" is the family's summary (the last state; both ends for a bidirectional model; the first
    token).

    For tasks that read units there is one vector per unit: the unit states of the chosen layers, concatenated.

    Args:
        settings: `layers`, `pooling`, and whether each pooled vector is scaled to length 1 (`unit_length`).
        widths: D of the embedding and of every layer, lowest first.

    Raises:
        ConfigError: the choice adds up layers of different widths, or needs layers above the embedding and the model
            (word vectors) has none.
    """

    def __init__(self, encoder: LanguageModel, settings: ReadingSettings, *, widths: Sequence[int]) -> None:
        super().__init__()
        self.layers, self.unit_length, self.widths = settings.layers, settings.unit_length, widths
        self.poolings = ("summary", "max", "mean") if settings.pooling == "concat" else (settings.pooling,)
        self._unit_states = encoder.unit_states
        # Mean and maximum in float32.
        pools: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "summary": encoder.summary, "lead": lead_mean, "trained": encoder.vectors_of,
            "mean": partial(pooled, pool="mean"), "max": partial(pooled, pool="max"),
        }  # fmt: skip
        self._pools = [pools[name] for name in self.poolings]
        if len(widths) == 1 and self.layers in ("second_to_last", "sum", "sum_last_four", "concat_last_four"):
            raise ConfigError(
                f"layers: {self.layers!r} needs layers above the embedding, and there are none; choose last"
            )
        added = {"sum": widths[1:], "sum_last_four": widths[1:][-4:], "mix": widths}.get(self.layers, ())
        if len(set(added)) > 1:
            raise ConfigError(
                f"layers: {self.layers!r} adds up layers, but they are {', '.join(map(str, added))} wide; "
                "choose all, concat_last_four or last, or equal widths in the model"
            )
        table = encoder.static_vectors()
        static = 0 if table is None else table.shape[1]
        self.mix = ScalarMix(len(widths), static=static, width=widths[0]) if self.layers == "mix" else None

    def select(self, hidden: Sequence[Tensor]) -> list[Tensor]:
        """The chosen hidden states, each (S, T, D); all of them for `mix` and `all`."""
        above = hidden[1:]
        chosen = {
            "last": hidden[-1:],
            "second_to_last": hidden[-2:-1],
            "first": hidden[:1],
            "sum": above,
            "sum_last_four": above[-4:],
            "concat_last_four": above[-4:],
        }.get(self.layers, hidden)
        return [torch.stack(list(chosen)).sum(0)] if self.layers.startswith("sum") else list(chosen)

    def forward(self, hidden: Sequence[Tensor], lengths: Tensor) -> Tensor:
        """L + 1 tensors (S, T, D_l) -> (S, F) float32."""
        return self.mixed(self.pooled(hidden, lengths))

    def mixed(self, vectors: Tensor) -> Tensor:
        """The vectors of `pooled` or `of_units`; with `mix`, the weighted sum of the layers' parts."""
        return vectors if self.mix is None else self.mix(vectors.chunk(len(self.mix.scores), dim=-1))

    def pooled(self, hidden: Sequence[Tensor], lengths: Tensor) -> Tensor:
        """L + 1 tensors (S, T, D_l) -> (S, F) float32; with `mix` (S, (L + 1) F), independent of its weights."""
        parts = [pool(layer, lengths).float() for layer in self.select(hidden) for pool in self._pools]
        return torch.cat([nn.functional.normalize(part, dim=1) for part in parts] if self.unit_length else parts, dim=1)

    def block_widths(self, hidden: Sequence[Tensor], *, units: bool) -> list[int]:
        """Widths of the blocks of a vector: the pools of each chosen layer, or with `units` the layers."""
        layers = [hidden[0]] if self.layers == "mix" else self.select(hidden)
        if units:
            return [layer.shape[-1] for layer in layers]
        lengths = torch.full((len(hidden[0]),), hidden[0].shape[1], device=hidden[0].device)
        return [pool(layer, lengths).shape[1] for layer in layers for pool in self._pools]

    def of_units(self, hidden: Sequence[Tensor], units: Tensor) -> Tensor:
        """L + 1 tensors (S, T, D_l) and (S, U, 2) columns -> (S, U, F) float32; with `mix` as in `pooled`."""
        return torch.cat([self._unit_states(layer, units).float() for layer in self.select(hidden)], dim=2)
