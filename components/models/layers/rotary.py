"""Rotary position embeddings: queries and keys are rotated by angles that are proportional to their positions.

Su et al. 2021 (RoFormer: Enhanced Transformer with Rotary Position Embedding), section 3.2: with K / 2 frequencies
f_i = 10000^(-2i / K), the pair (x_i, x_{i + K/2}) at position t is rotated by the angle t f_i. The product of a query
and a key then depends on the distance of their positions only. The pairs of the paper are (x_{2i}, x_{2i+1}); here they
are halves of the head, which is the same up to the order of the features and needs no strided access.

Shape suffixes: B batch rows, T positions, N heads, K head width.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

#: Ratio of the largest to the smallest wavelength, as in the paper.
BASE: Final = 10_000.0
#: Cosines and sines (..., T, K / 2) of the angles.
Rotation = tuple[Tensor, Tensor]


def rotation(positions: Tensor, width: int) -> Rotation:
    """Cosines and sines of the angles for positions (..., T) and heads of `width` K, which is even."""
    half = torch.arange(width // 2, device=positions.device, dtype=torch.float32)
    angles = positions.unsqueeze(-1).float() * BASE ** (-2 * half / width)
    return angles.cos(), angles.sin()


def rotated(x_BTNK: Tensor, by: Rotation) -> Tensor:
    """Vectors of each head, rotated; the tables of `by` are (T, K / 2), or (B, T, K / 2) for other positions in each
    row."""
    cos, sin = (table.unsqueeze(-2).to(x_BTNK.dtype) for table in by)
    first, second = x_BTNK.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
