"""Multi-head self-attention without causality.

Vaswani et al. 2017, section 3.2: softmax(Q K^T / sqrt(K)) V per head, heads joined and projected.

Shape suffixes: B batch rows, T positions, D model width, N heads, K head width (D = N K).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.layers.dropout import Dropout
from components.models.layers.linear import Linear


class SelfAttention(nn.Module):
    """Queries, keys and values come from one matrix product.

    Args:
        width: D.
        heads: N.
        dropout: of the attention weights.
    """

    def __init__(self, width: int, heads: int, *, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = Linear(width, 3 * width)
        self.output = Linear(width, width)
        self.dropout = Dropout(dropout)

    def forward(self, x_BTD: Tensor, mask_B11T: Tensor | None) -> Tensor:
        """`mask_B11T` is True at real positions; None where every position is real."""
        rows, length, width = x_BTD.shape
        packed = self.query_key_value(x_BTD).view(rows, length, 3, self.heads, width // self.heads)
        q_BNTK, k_BNTK, v_BNTK = packed.permute(2, 0, 3, 1, 4)
        if self.dropout.rate:
            scores_BNTT = (q_BNTK / math.sqrt(width // self.heads)) @ k_BNTK.transpose(-1, -2)
            if mask_B11T is not None:
                scores_BNTT = scores_BNTT.masked_fill(~mask_B11T, torch.finfo(scores_BNTT.dtype).min)
            mixed_BNTK = self.dropout(scores_BNTT.softmax(-1)) @ v_BNTK
        else:
            mixed_BNTK = F.scaled_dot_product_attention(q_BNTK, k_BNTK, v_BNTK, attn_mask=mask_B11T)
        output: Tensor = self.output(mixed_BNTK.transpose(1, 2).reshape(rows, length, width))
        return output
