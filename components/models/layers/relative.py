"""Attention that knows distances instead of places, and the Transformer block around it.

Dai, Yang, Yang, Carbonell, Le and Salakhutdinov 2019 (Transformer-XL: Attentive Language Models beyond a Fixed-Length
Context, section 3.3): a query at place i scores a key at place j, both counted over the memory and the segment, by

    s_ij = ((q_i + u)^T k_j + (q_i + v)^T W_R R_{i-j}) / sqrt(K)

with R_d the sinusoids of distance d (Vaswani et al. 2017) and u, v learned. XLNet (Yang et al. 2019, section 2.5) adds
(q_i + s)^T g, where g says whether i and j are in the same segment.

W_R R is multiplied with all queries once for each of the distances, T (S + 1) products instead of T S different vectors
R_{i-j}; then row i is moved by its place ("relative shift").

Shape suffixes: B batch rows, T positions of the segment, M further queries, Q = T + M queries, S keys (memory and
segment), P distances, D model width, N heads, K head width (D = N K), F feed-forward width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import ModelConfig
from components.models.layers.dropout import Dropout
from components.models.layers.linear import Linear
from components.models.layers.transformer import Rate, Size

Count = Annotated[int, Field(ge=0)]

#: Score of a key that a query must not see. Finite, so that a query that may see nothing at all sees everything
#: instead of becoming NaN (XLNet's code does so); small enough to be exactly nothing beside any other score.
HIDDEN = -1e30

Biases = tuple[Tensor, Tensor]


class RelativeConfig(ModelConfig):
    """Sizes, memory and dropouts of a model of `RelativeBlock`.

    Attributes:
        width: D.
        layers: number of blocks.
        heads: attention heads; 0 for D / 64.
        feedforward: inner width of the feed-forward layers; 0 for 4 D.
        memory: positions of earlier segments that a segment reads while training; 0 for none.
        clamp: distances beyond this one count as this one; 0 for none.
        dropout: of embeddings, distances, sub-layers and output.
        dropout_attention: of the attention weights.
    """

    width: Size = 256
    layers: Size = 4
    heads: Count = 0
    feedforward: Count = 0
    memory: Count = 64
    clamp: Count = 0
    dropout: Rate = 0.1
    dropout_attention: Rate = 0.1

    @model_validator(mode="after")
    def _width_divides(self) -> Self:
        if self.width % self.head_count:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.head_count}")
        if self.width % 2:
            raise ValueError(f"width {self.width} is odd; sines and cosines of the distances take half of it each")
        return self

    @property
    def head_count(self) -> int:
        return self.heads or max(1, self.width // 64)

    @property
    def inner(self) -> int:
        return self.feedforward or 4 * self.width


def sinusoids(distances_P: Tensor, width: int) -> Tensor:
    """R (P, D) in float32: the sines of d / 10000^(2i/D) in the first half, the cosines in the second.

    The order is that of Transformer-XL's code; W_R makes it a matter of convention.
    """
    exponents = torch.arange(0, width, 2, device=distances_P.device) / width
    angles = distances_P.float().unsqueeze(1) / 10000**exponents
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def distances(segment: int, keys: int, *, ahead: bool, clamp: int, device: torch.device) -> Tensor:
    """The distances (P,) that `Scope` wants: keys - 1 down to -1 without, or to -segment with keys `ahead` of a query.

    Args:
        clamp: longer distances count as this one; 0 for none.
    """
    result = torch.arange(keys - 1, -(segment if ahead else 1) - 1, -1, device=device)
    return result.clamp(-clamp, clamp) if clamp else result


@dataclass(frozen=True)
class Scope:
    """Where the queries of a forward pass stand and what they see; the same in all layers.

    The first T queries are the last T of the S keys, in their order; M more may stand at any of these T places.

    Attributes:
        length: T.
        encoding: R at `distances` (P, D); or (2, P, D), R at d and at -d, with `backward`.
        hidden: True where a key is not seen; (Q, S) or (B, Q, S).
        places: (B, M) int64, places of the further queries in the segment, 0 to T - 1; None for no further ones.
        differs: (B, Q, S), True where query and key are in different segments; None if all are in one.
        backward: (B,) int64, 1 for rows whose text is read from its end: their distances count the other way.
    """

    length: int
    encoding: Tensor
    hidden: Tensor | None = None
    places: Tensor | None = None
    differs: Tensor | None = None
    backward: Tensor | None = None

    def further(self) -> Scope:
        """The same without the queries in order; masks must be (B, Q, S)."""
        hidden, differs = (None if mask is None else mask[:, self.length :] for mask in (self.hidden, self.differs))
        return replace(self, hidden=hidden, differs=differs)

    def within(self, mask: Tensor | None) -> Scope:
        """The same, and hidden is also what the mask (B, 1, Q, S) is not True for."""
        if mask is None:
            return self
        hidden = ~mask[:, 0]
        return replace(self, hidden=hidden if self.hidden is None else hidden | self.hidden)


class RelativeAttention(nn.Module):
    """Multi-head attention with relative places.

    Args:
        width: D.
        heads: N.
        dropout: of the attention weights.
        biased: whether u and v are the layer's own; they are given to `forward` where all layers share them.
        segments: whether the layer tells segments apart.
    """

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
        """What the queries read: (B, Q, D).

        Args:
            x_BQD: what the queries are made of.
            keys_BSC: `key_value` of memory and segment, C = 2 D: keys and values.
            scope: where they stand.
            biases: u and v (N, K), where the layer has none of its own.
        """
        rows, queries, width = x_BQD.shape
        u_NK, v_NK = biases or (self.content_bias, self.position_bias)
        # Heads before rows: the scores of distances are then one product a head over all rows.
        q_NBQK = self.query(x_BQD).view(rows, queries, self.heads, -1).permute(2, 0, 1, 3)
        k_NBSK, v_NBSK = keys_BSC.view(rows, keys_BSC.shape[1], 2, self.heads, -1).permute(2, 3, 0, 1, 4)
        scores_NBQS = self._distance_scores(q_NBQK + _a_head(v_NK, q_NBQK), k_NBSK.shape[2], scope)
        if scope.differs is not None:
            # Only what "other" has over "same" matters: a softmax does not see what all keys share.
            other_NK = self.segment[1] - self.segment[0]
            preference_NBQ1 = (q_NBQK + _a_head(self.segment_bias, q_NBQK)) @ _a_head(other_NK, q_NBQK).mT
            scores_NBQS = scores_NBQS.addcmul_(preference_NBQ1, scope.differs.to(scores_NBQS.dtype))
        mixed_NBQK = self._attend(q_NBQK + _a_head(u_NK, q_NBQK), k_NBSK, v_NBSK, scores_NBQS, scope.hidden)
        output: Tensor = self.output(mixed_NBQK.permute(1, 2, 0, 3).reshape(rows, queries, width))
        return output

    def _attend(
        self, q_NBQK: Tensor, k_NBSK: Tensor, v_NBSK: Tensor, scores_NBQS: Tensor, hidden: Tensor | None
    ) -> Tensor:
        """softmax((q k^T + scores) / sqrt(K)) v, where not hidden; `scores` may be overwritten."""
        # On a processor no fused kernel gives a gradient to the scores of distances.
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
        """q_i^T W_R R_{i-j} of every query and key: (N, B, Q, S), newly made."""
        heads, rows, queries, size = q_NBQK.shape
        encoding = scope.encoding.to(q_NBQK.dtype)
        if scope.backward is not None:
            r_2PNK = self.position(encoding).unflatten(-1, (heads, size))
            scores = q_NBQK @ r_2PNK.permute(2, 0, 3, 1).index_select(1, scope.backward)
        elif queries == 1:
            # W_R is applied to the one query instead of to all distances, so that a new piece costs no P D^2.
            weight_NKD = self.position.weight.to(q_NBQK.dtype).view(heads, size, -1)
            scores = q_NBQK.reshape(heads, rows, size) @ weight_NKD @ encoding.mT
        else:
            scores = q_NBQK.reshape(heads, rows * queries, size) @ self.position(encoding).view(
                -1, heads, size
            ).permute(1, 2, 0)
        return _shifted(scores.view(heads, rows, queries, -1), keys, scope.length, scope.places)


def _shifted(x_NBQP: Tensor, keys: int, length: int, places_BM: Tensor | None) -> Tensor:
    """From scores of distances (N, B, Q, P) to scores of keys (N, B, Q, S), newly made.

    Key j of a query at place t of the segment lies in column j + T - 1 - t. For the T queries in order that is a view
    of the same numbers, one row further being one column further left; the others are gathered.
    """
    further = 0 if places_BM is None else places_BM.shape[1]
    in_order = x_NBQP.shape[2] - further
    parts = []
    if in_order:
        columns = x_NBQP.shape[3]
        moved = x_NBQP[:, :, :in_order].flatten(2)[:, :, length - 1 : length * columns - 1]
        parts.append(moved.unflatten(2, (length, columns - 1))[..., :keys])
    if places_BM is not None:
        offsets_BM1 = (length - 1 - places_BM).unsqueeze(2)
        columns_BMS = offsets_BM1 + torch.arange(keys, device=x_NBQP.device)
        keys_BMP = torch.arange(x_NBQP.shape[3], device=x_NBQP.device) - offsets_BM1
        parts.append(_Gather.apply(x_NBQP[:, :, in_order:], columns_BMS, keys_BMP))
    return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0].contiguous()


class _Gather(torch.autograd.Function):
    """Columns of each row, no column twice: so the gradient can be gathered too, where autograd would scatter."""

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


def _a_head(parameter_NK: Tensor, like: Tensor) -> Tensor:
    """A parameter of each head, ready to meet (N, B, Q, K)."""
    return parameter_NK.to(like.dtype)[:, None, None, :]


class RelativeBlock(nn.Module):
    """A Transformer block with relative attention, as Transformer-XL and XLNet have it.

    After:  x = LN(x + attention(x));  x = LN(x + W_2 f(W_1 x + b_1) + b_2)
    Before: x = x + attention(LN(x));  x = x + W_2 f(W_1 LN(x) + b_1) + b_2

    Args:
        config: sizes and dropouts.
        activation: f.
        norm_first: whether a norm stands before its sub-layer.
        eps: of the norms.
        biased, segments: as for `RelativeAttention`.
    """

    def __init__(
        self,
        config: RelativeConfig,
        *,
        activation: Literal["relu", "gelu"],
        eps: float,
        norm_first: bool = False,
        biased: bool = True,
        segments: bool = False,
    ) -> None:
        super().__init__()
        width = config.width
        self.attention = RelativeAttention(
            width, config.head_count, dropout=config.dropout_attention, biased=biased, segments=segments
        )
        self.attention_norm = nn.LayerNorm(width, eps=eps)
        self.expand = Linear(width, config.inner)
        self.contract = Linear(config.inner, width)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.activation = F.relu if activation == "relu" else F.gelu
        self.norm_first = norm_first
        self.drop = Dropout(config.dropout)

    def keys(self, source_BSD: Tensor) -> Tensor:
        """Keys and values (B, S, C) of memory and segment, which are inputs of this block."""
        keys: Tensor = self.attention.key_value(self.attention_norm(source_BSD) if self.norm_first else source_BSD)
        return keys

    def forward(self, x_BQD: Tensor, keys_BSC: Tensor, scope: Scope, biases: Biases | None = None) -> Tensor:
        """Arguments as for `RelativeAttention`; `keys_BSC` is what `keys` returns."""
        if self.norm_first:
            x_BQD = x_BQD + self.drop(self.attention(self.attention_norm(x_BQD), keys_BSC, scope, biases))
            return x_BQD + self._feedforward(self.norm(x_BQD))
        x_BQD = self.attention_norm(x_BQD + self.drop(self.attention(x_BQD, keys_BSC, scope, biases)))
        output: Tensor = self.norm(x_BQD + self._feedforward(x_BQD))
        return output

    def _feedforward(self, x_BQD: Tensor) -> Tensor:
        output: Tensor = self.drop(self.contract(self.drop(self.activation(self.expand(x_BQD)))))
        return output
