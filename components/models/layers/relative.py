"""Attention with relative positions, and its Transformer block.

Dai, Yang, Yang, Carbonell, Le and Salakhutdinov 2019 (Transformer-XL: Attentive Language Models beyond a Fixed-Length
Context, section 3.3): the score of a query at position i and a key at position j, counted over memory and segment, is

    s_ij = ((q_i + u)^T k_j + (q_i + v)^T W_R R_{i-j}) / sqrt(K)

with R_d the sinusoids of distance d (Vaswani et al. 2017) and u, v learned. XLNet (Yang et al. 2019, section 2.5) adds
(q_i + s)^T g, where g depends on whether i and j are in the same segment.

All queries are multiplied by W_R R of all distances; then the scores of each query are shifted by its position
("relative shift").

Shape suffixes: B batch rows, T positions of the segment, M further queries, Q = T + M queries, S keys (memory and
segment), P distances, D model width, N heads, K head width (D = N K), F feed-forward width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import torch
from pydantic import NonNegativeInt, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import LanguageModel, ModelConfig, Rate, Size
from components.models.layers.adaptive import TiedVocabulary
from components.models.layers.dropout import Dropout
from components.models.layers.linear import LayerNorm, Linear

#: Score of a masked key. Finite, so that a query for which all keys are masked attends to all of them instead of giving
#: NaN (as in XLNet's code); small enough that its softmax is exactly 0 if any key is not masked.
HIDDEN = -1e30

Biases = tuple[Tensor, Tensor]


class RelativeConfig(ModelConfig):
    """Sizes, memory and dropout rates of a model of `RelativeBlock`.

    Attributes:
        width: D.
        layers: number of blocks.
        heads: number of attention heads; 0 for D / 64.
        feedforward: inner width of the feed-forward layers; 0 for 4 D.
        memory: number of positions of earlier segments that a segment attends to in training; 0 for none.
        clamp: maximum distance, to which larger ones are clamped; 0 for none.
        dropout: rate on embeddings, distance encodings, sub-layers and output.
        dropout_attention: rate on the attention weights.
    """

    width: Size = 256
    layers: Size = 4
    heads: NonNegativeInt = 0
    feedforward: NonNegativeInt = 0
    memory: NonNegativeInt = 64
    clamp: NonNegativeInt = 0
    dropout: Rate = 0.1
    dropout_attention: Rate = 0.1

    @model_validator(mode="after")
    def _width_divides(self) -> Self:
        if self.width % self.head_count:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.head_count}")
        if self.width % 2:
            raise ValueError(f"width {self.width} is odd; sines and cosines of the distances have half of it each")
        return self

    @property
    def head_count(self) -> int:
        return self.heads or max(1, self.width // 64)

    @property
    def inner(self) -> int:
        return self.feedforward or 4 * self.width


def sinusoids(distances_P: Tensor, width: int) -> Tensor:
    """R (P, D) float32: sines of d / 10000^(2i/D), then cosines, as in Transformer-XL's code."""
    exponents = torch.arange(0, width, 2, device=distances_P.device) / width
    angles = distances_P.float().unsqueeze(1) / 10000**exponents
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def distances(segment: int, keys: int, *, ahead: bool, clamp: int, device: torch.device) -> Tensor:
    """The distances (P,) of `Scope`, clamped: keys - 1 down to -1, or to -segment if queries attend `ahead`."""
    result = torch.arange(keys - 1, -(segment if ahead else 1) - 1, -1, device=device)
    return result.clamp(-clamp, clamp) if clamp else result


@dataclass(frozen=True)
class Scope:
    """Positions and masks of the queries of a forward pass, the same in all layers: T at the positions of the last T
    keys, in order, and M further ones at any of these.

    Attributes:
        length: T.
        encoding: R at `distances` (P, D); or (2, P, D), R at d and at -d, with `backward`.
        hidden: (Q, S) or (B, Q, S), True where the key is masked; None for no mask.
        positions: (B, M) int64, positions of the further queries in the segment, 0 to T - 1; None for none.
        differs: (B, Q, S), True where query and key are in different segments; None if all are in one.
        backward: (B,) int64, 1 for rows that are read from their end, whose distances have the opposite sign.
    """

    length: int
    encoding: Tensor
    hidden: Tensor | None = None
    positions: Tensor | None = None
    differs: Tensor | None = None
    backward: Tensor | None = None

    def further(self) -> Scope:
        """The same scope without the first T queries; masks must be (B, Q, S)."""
        hidden, differs = (None if mask is None else mask[:, self.length :] for mask in (self.hidden, self.differs))
        return replace(self, hidden=hidden, differs=differs)

    def within(self, mask: Tensor | None) -> Scope:
        """The same scope, with the keys additionally masked for which `mask` (B, 1, Q, S) is False."""
        if mask is None:
            return self
        hidden = ~mask[:, 0]
        return replace(self, hidden=hidden if self.hidden is None else hidden | self.hidden)


class RelativeAttention(nn.Module):
    """Multi-head attention with relative positions; `biased`: with its own u and v; `segments`: as in XLNet."""

    def __init__(self, width: int, heads: int, *, dropout: float, biased: bool = True, segments: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.query = Linear(width, width, bias=False)
        self.key_value = Linear(width, 2 * width, bias=False)
        self.position = Linear(width, width, bias=False)
        self.output = Linear(width, width, bias=False)
        self.dropout = Dropout(dropout)
        size = (heads, width // heads)
        if biased:
            self.content_bias = nn.Parameter(torch.zeros(size))
            self.position_bias = nn.Parameter(torch.zeros(size))
        if segments:
            self.segment_bias = nn.Parameter(torch.zeros(size))
            self.segment = nn.Parameter(torch.zeros(2, *size))

    def forward(self, x_BQD: Tensor, keys_BSC: Tensor, scope: Scope, biases: Biases | None = None) -> Tensor:
        """Attention outputs (B, Q, D).

        Args:
            biases: u and v (N, K), if the layer has none of its own.
        """
        rows, queries, width = x_BQD.shape
        u_NK, v_NK = biases or (self.content_bias, self.position_bias)
        # With heads before rows, the scores of distances are one matrix product per head over all rows.
        q_NBQK = self.query(x_BQD).view(rows, queries, self.heads, -1).permute(2, 0, 1, 3)
        k_NBSK, v_NBSK = keys_BSC.view(rows, keys_BSC.shape[1], 2, self.heads, -1).permute(2, 3, 0, 1, 4)
        scores_NBQS = self._distance_scores(q_NBQK + _per_head(v_NK, q_NBQK), k_NBSK.shape[2], scope)
        if scope.differs is not None:
            # Softmax is invariant to a constant, so only the difference between "other" and "same" is added.
            other_NK = self.segment[1] - self.segment[0]
            preference_NBQ1 = (q_NBQK + _per_head(self.segment_bias, q_NBQK)) @ _per_head(other_NK, q_NBQK).mT
            scores_NBQS = scores_NBQS.addcmul_(preference_NBQ1, scope.differs.to(scores_NBQS.dtype))
        mixed_NBQK = self._attend(q_NBQK + _per_head(u_NK, q_NBQK), k_NBSK, v_NBSK, scores_NBQS, scope.hidden)
        return self.output(mixed_NBQK.permute(1, 2, 0, 3).reshape(rows, queries, width))

    def _attend(
        self, q_NBQK: Tensor, k_NBSK: Tensor, v_NBSK: Tensor, scores_NBQS: Tensor, hidden: Tensor | None
    ) -> Tensor:
        """softmax((q k^T + scores) / sqrt(K)) v with masked keys; may overwrite `scores`."""
        # On the CPU no fused kernel has a gradient w.r.t. the scores of distances.
        attend = self._by_kernel if q_NBQK.is_cuda else self._in_place
        return attend(q_NBQK, k_NBSK, v_NBSK, scores_NBQS, hidden)

    def _by_kernel(
        self, q_NBQK: Tensor, k_NBSK: Tensor, v_NBSK: Tensor, scores_NBQS: Tensor, hidden: Tensor | None
    ) -> Tensor:
        bias_NBQS = scores_NBQS / math.sqrt(q_NBQK.shape[-1])
        if hidden is not None:
            bias_NBQS = bias_NBQS.masked_fill(hidden, HIDDEN)
        return F.scaled_dot_product_attention(q_NBQK, k_NBSK, v_NBSK, attn_mask=bias_NBQS, dropout_p=self.dropout.rate)

    def _in_place(
        self, q_NBQK: Tensor, k_NBSK: Tensor, v_NBSK: Tensor, scores_NBQS: Tensor, hidden: Tensor | None
    ) -> Tensor:
        scale = 1 / math.sqrt(q_NBQK.shape[-1])
        products = scores_NBQS.flatten(0, 1).baddbmm_(
            q_NBQK.flatten(0, 1), k_NBSK.flatten(0, 1).mT, beta=scale, alpha=scale
        )
        scores_NBQS = products.view(scores_NBQS.shape)
        if hidden is not None:
            scores_NBQS = scores_NBQS.masked_fill_(hidden, HIDDEN)
        return self.dropout(scores_NBQS.softmax(-1)) @ v_NBSK

    def _distance_scores(self, q_NBQK: Tensor, keys: int, scope: Scope) -> Tensor:
        heads, rows, queries, size = q_NBQK.shape
        encoding = scope.encoding.to(q_NBQK.dtype)
        if scope.backward is not None:
            r_2PNK = self.position(encoding).unflatten(-1, (heads, size))
            scores = q_NBQK @ r_2PNK.permute(2, 0, 3, 1).index_select(1, scope.backward)
        elif queries == 1:
            # For a single query, W_R is applied to the query instead of to P distances.
            weight_NKD = self.position.weight.to(q_NBQK.dtype).view(heads, size, -1)
            scores = q_NBQK.reshape(heads, rows, size) @ weight_NKD @ encoding.mT
        else:
            scores = q_NBQK.reshape(heads, rows * queries, size) @ self.position(encoding).view(
                -1, heads, size
            ).permute(1, 2, 0)
        return _shifted(scores.view(heads, rows, queries, -1), keys, scope.length, scope.positions)


def _shifted(x_NBQP: Tensor, keys: int, length: int, positions_BM: Tensor | None) -> Tensor:
    """Turn scores of distances (N, B, Q, P) into scores of keys (N, B, Q, S), a new tensor.

    The score of key j and a query at position t of the segment is in column j + T - 1 - t. For the first T queries that
    is a strided view; the further ones are gathered."""
    further = 0 if positions_BM is None else positions_BM.shape[1]
    in_order = x_NBQP.shape[2] - further
    parts = []
    if in_order:
        columns = x_NBQP.shape[3]
        shifted = x_NBQP[:, :, :in_order].flatten(2)[:, :, length - 1 : length * columns - 1]
        parts.append(shifted.unflatten(2, (length, columns - 1))[..., :keys])
    if positions_BM is not None:
        offsets_BM1 = (length - 1 - positions_BM).unsqueeze(2)
        columns_BMS = offsets_BM1 + torch.arange(keys, device=x_NBQP.device)
        keys_BMP = torch.arange(x_NBQP.shape[3], device=x_NBQP.device) - offsets_BM1
        parts.append(_Gather.apply(x_NBQP[:, :, in_order:], columns_BMS, keys_BMP))
    return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0].contiguous()


class _Gather(torch.autograd.Function):
    """Gathers distinct columns of each row, so that the backward pass is a gather instead of autograd's scatter."""

    @staticmethod
    def forward(ctx: Any, x_NBMP: Tensor, columns_BMS: Tensor, keys_BMP: Tensor) -> Tensor:
        ctx.save_for_backward(columns_BMS, keys_BMP)
        return x_NBMP.gather(3, columns_BMS.expand(len(x_NBMP), -1, -1, -1))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        grad_NBMS = gradients[0]
        columns_BMS, keys_BMP = ctx.saved_tensors
        last = columns_BMS.shape[2] - 1
        grad_x = grad_NBMS.gather(3, keys_BMP.clamp(0, last).expand(len(grad_NBMS), -1, -1, -1))
        return grad_x.masked_fill((keys_BMP < 0) | (keys_BMP > last), 0), None, None


def _per_head(parameter_NK: Tensor, like: Tensor) -> Tensor:
    return parameter_NK.to(like.dtype)[:, None, None, :]


class RelativeBlock(nn.Module):
    """The block of Transformer-XL and XLNet: x = LN(x + attention(x)); x = LN(x + W_2 f(W_1 x + b_1) + b_2)."""

    def __init__(
        self,
        config: RelativeConfig,
        *,
        activation: Literal["relu", "gelu"],
        eps: float,
        biased: bool = True,
        segments: bool = False,
    ) -> None:
        super().__init__()
        width = config.width
        self.attention = RelativeAttention(
            width, config.head_count, dropout=config.dropout_attention, biased=biased, segments=segments
        )
        self.attention_norm = LayerNorm(width, eps=eps)
        self.expand = Linear(width, config.inner)
        self.contract = Linear(config.inner, width)
        self.norm = LayerNorm(width, eps=eps)
        self.activation = F.relu if activation == "relu" else F.gelu
        self.drop = Dropout(config.dropout)

    def keys(self, source_BSD: Tensor) -> Tensor:
        """Keys and values (B, S, C) of memory and segment, from this block's inputs (B, S, D)."""
        return self.attention.key_value(source_BSD)

    def forward(self, x_BQD: Tensor, keys_BSC: Tensor, scope: Scope, biases: Biases | None = None) -> Tensor:
        """(B, Q, D) -> (B, Q, D); arguments as of `RelativeAttention.forward`, with the output of `keys`."""
        x_BQD = self.attention_norm(x_BQD + self.drop(self.attention(x_BQD, keys_BSC, scope, biases)))
        inner_BQF = self.drop(self.activation(self.expand(x_BQD)))
        return self.norm(x_BQD + self.drop(self.contract(inner_BQF)))


class RelativeModel(LanguageModel):
    """Base of the models of these blocks, whose `pieces` are the embedding and the softmax."""

    pieces: TiedVocabulary

    def remap_vocabulary(self, rows: Tensor) -> None:
        self.pieces = self.pieces.remapped(rows)
        self.config = self.config.model_copy(update={"vocabulary": len(rows)})

    def set_output_bias(self, log_frequencies: Tensor) -> None:
        self.pieces.set_bias(log_frequencies)

    def piece_embedding(self) -> nn.Parameter | None:
        return self.pieces.tables[0] if self.pieces.clusters == 1 else None
