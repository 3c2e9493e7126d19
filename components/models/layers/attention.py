"""Multi-head attention: bidirectional, causal, and causal within a band; from one sequence to another.

Vaswani et al. 2017, section 3.2: softmax(Q K^T / sqrt(K)) V per head, concatenated and projected. The band is the local
pattern of the Sparse Transformer (Child et al. 2019), used by GPT-3 in every other layer: t attends to t - w + 1 .. t.

Shape suffixes: B batch rows, T queries, S keys, D model width, N heads, K head width (D = N K), w width of the band,
C = ceil(T / w) chunks of that width.
"""

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.layers.dropout import Dropout
from components.models.layers.linear import Linear

#: Maximum number of keys for which separate operators are faster than the fused attention kernel: on the CPU in
#: bfloat16, forward and backward pass together.
SHORT: Final = 256


#: Keys and values (B, N, S, K) of earlier positions; () for none.
Past = tuple[Tensor, ...]
#: Cosines and sines of the angles of each position, of a shape that broadcasts to (B, N, T, K).
Rotation = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(K)) V per head; subclasses project Q, K, V and the `output`.

    Args:
        dropout: rate on the attention weights.
    """

    output: Linear

    def __init__(self, heads: int, *, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = Dropout(dropout)

    def _split(self, projected: Tensor, parts: int) -> Tensor:
        rows, length, width = projected.shape
        return projected.view(rows, length, parts, self.heads, width // parts // self.heads).permute(2, 0, 3, 1, 4)

    def _join(self, mixed_BNTK: Tensor) -> Tensor:
        return self.output(mixed_BNTK.transpose(1, 2).flatten(2))

    def _mix(
        self, q_BNTK: Tensor, k_BNSK: Tensor, v_BNSK: Tensor, mask: Tensor | None, *, causal: bool = False
    ) -> Tensor:
        rate = self.dropout.rate
        # On the CPU the fused kernel does not support dropout, and torch's fallback samples more random bits than
        # `Dropout`. For short rows in bfloat16 the kernel's backward pass takes three times as long as separate
        # operators.
        slow = rate or (q_BNTK.requires_grad and q_BNTK.dtype == torch.bfloat16 and k_BNSK.shape[2] <= SHORT)
        # The exporter to ONNX loses the strides of the fused kernel with a bias.
        is_bias = mask is not None and mask.is_floating_point()
        slow = slow or (is_bias and torch.compiler.is_compiling())
        if q_BNTK.is_cuda or not slow:
            return F.scaled_dot_product_attention(
                q_BNTK, k_BNSK, v_BNSK, attn_mask=mask, dropout_p=rate, is_causal=causal
            )
        scores_BNTS = (q_BNTK / math.sqrt(q_BNTK.shape[-1])) @ k_BNSK.transpose(-1, -2)
        if causal:
            mask = causal_mask(q_BNTK.shape[2], k_BNSK.shape[2], device=q_BNTK.device)
        if mask is not None:
            lowest = torch.finfo(scores_BNTS.dtype).min
            scores_BNTS = scores_BNTS + mask if is_bias else scores_BNTS.masked_fill(~mask, lowest)
        return self.dropout(scores_BNTS.softmax(-1)) @ v_BNSK


class SelfAttention(Attention):
    """Self-attention; queries, keys and values are one matrix product. `band`: w, number of positions that a causal
    position attends to, itself included; 0 for all."""

    def __init__(
        self, width: int, heads: int, *, dropout: float, causal: bool = False, band: int = 0, bias: bool = True
    ) -> None:
        super().__init__(heads, dropout=dropout)
        self.causal, self.band = causal, band
        self.query_key_value = Linear(width, 3 * width, bias=bias)
        self.output = Linear(width, width, bias=bias)

    def forward(self, x_BTD: Tensor, mask: Tensor | None = None, rotation: Rotation | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D).

        Args:
            mask: True where attention is allowed, (B, 1, 1, T), (B, 1, T, T) or (T, T); None: everywhere. Combined with
                the causal mask. Or a bias of the scores, (B, N, T, T) in their type. Must be None if there is a band
                and T > w.
            rotation: of queries and keys by their positions.
        """
        return self._join(self._attend(*self._project(x_BTD, rotation), mask))

    def extend(self, x_BTD: Tensor, past: Past, rotation: Rotation | None = None) -> tuple[Tensor, Past]:
        """Causal attention of the positions after `past`; and the keys and values for the next call."""
        q_BNTK, k_BNSK, v_BNSK = self._project(x_BTD, rotation)
        if past:
            k_BNSK, v_BNSK = torch.cat([past[0], k_BNSK], 2), torch.cat([past[1], v_BNSK], 2)
            mask = causal_mask(q_BNTK.shape[2], k_BNSK.shape[2], band=self.band, device=x_BTD.device)
            mixed_BNTK = self._mix(q_BNTK, k_BNSK, v_BNSK, mask)
        else:
            mixed_BNTK = self._attend(q_BNTK, k_BNSK, v_BNSK, None)
        # The band of the next position includes that position.
        first = max(0, k_BNSK.shape[2] - (self.band - 1)) if self.band else 0
        return self._join(mixed_BNTK), (k_BNSK[:, :, first:], v_BNSK[:, :, first:])

    def _project(self, x_BTD: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        q_BNTK, k_BNTK, v_BNTK = self._split(self.query_key_value(x_BTD), 3)
        if rotation is not None:
            q_BNTK, k_BNTK = rotated(q_BNTK, rotation), rotated(k_BNTK, rotation)
        return q_BNTK, k_BNTK, v_BNTK

    def _attend(self, q_BNTK: Tensor, k_BNTK: Tensor, v_BNTK: Tensor, mask: Tensor | None) -> Tensor:
        length = q_BNTK.shape[2]
        if self.band and length > self.band:
            assert mask is None
            return self._attend_within_band(q_BNTK, k_BNTK, v_BNTK)
        if self.causal and mask is not None:
            return self._mix(q_BNTK, k_BNTK, v_BNTK, mask & causal_mask(length, length, device=mask.device))
        return self._mix(q_BNTK, k_BNTK, v_BNTK, mask, causal=self.causal)

    def _attend_within_band(self, q_BNTK: Tensor, k_BNTK: Tensor, v_BNTK: Tensor) -> Tensor:
        """T * 2w dot products instead of T * T: a chunk of w queries attends to its own chunk and the previous one."""
        rows, heads, length, width = q_BNTK.shape
        band, chunks = self.band, math.ceil(length / self.band)
        rest = chunks * band - length
        queries = F.pad(q_BNTK, (0, 0, 0, rest)).view(rows, heads, chunks, band, width)
        keys, values = (F.pad(x, (0, 0, band, rest)).unfold(2, 2 * band, band).mT for x in (k_BNTK, v_BNTK))
        # Chunks become rows of the batch: (B C, N, w or 2w, K).
        queries, keys, values = (x.transpose(1, 2).flatten(0, 1) for x in (queries, keys, values))
        mask_C1 = causal_mask(band, 2 * band, band=band, device=q_BNTK.device).repeat(chunks, 1, 1)
        # The first chunk has no previous one.
        mask_C1[0, :, :band] = False
        mixed = self._mix(queries, keys, values, mask_C1.repeat(rows, 1, 1).unsqueeze(1))
        mixed = mixed.view(rows, chunks, heads, band, width).transpose(1, 2)
        return mixed.flatten(2, 3)[:, :, :length]


class CrossAttention(Attention):
    """Attention of a decoder to the states of an encoder, whose keys and values are computed once (section 3.2.3)."""

    def __init__(self, width: int, heads: int, *, dropout: float) -> None:
        super().__init__(heads, dropout=dropout)
        self.query = Linear(width, width)
        self.key_value = Linear(width, 2 * width)
        self.output = Linear(width, width)

    def read(self, states_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, N, S, K) of the encoder's states."""
        k_BNSK, v_BNSK = self._split(self.key_value(states_BSD), 2)
        return k_BNSK, v_BNSK

    def forward(self, x_BTD: Tensor, k_BNSK: Tensor, v_BNSK: Tensor, mask_BS: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D); no position attends where the mask is False."""
        (q_BNTK,) = self._split(self.query(x_BTD), 1)
        return self._join(self._mix(q_BNTK, k_BNSK, v_BNSK, mask_BS[:, None, None, :]))


def rotation_of(positions: Tensor, width: int, *, base: float) -> Rotation:
    """The rotation of positions (B, T) in heads of `width` K: the angle of column i and of column K / 2 + i is
    t base^(-2i/K), float32 (B, 1, T, K)."""
    rates = base ** -(torch.arange(0, width, 2, device=positions.device) / width)
    angles_B1TK = (positions[:, None, :, None] * rates).repeat(1, 1, 1, 2)
    return angles_B1TK.cos(), angles_B1TK.sin()


def rotated(x_BNTK: Tensor, rotation: Rotation) -> Tensor:
    cos, sin = rotation
    low, high = x_BNTK.float().chunk(2, dim=-1)
    return (x_BNTK.float() * cos + torch.cat([-high, low], dim=-1) * sin).to(x_BNTK.dtype)


def causal_mask(length: int, keys: int, *, band: int = 0, device: torch.device | None = None) -> Tensor:
    """(T, S) bool: the causal mask of the last T = `length` of S = `keys` positions, within `band` if it is not 0."""
    at_T1 = torch.arange(keys - length, keys, device=device).unsqueeze(1)
    age_TS = at_T1 - torch.arange(keys, device=device)
    return (age_TS >= 0) & (age_TS < band) if band else age_TS >= 0
