"""Reversal of the texts of a batch, for backward and bidirectional models.

Shapes: B texts, T pieces (padding included), D width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def turned(lengths: Tensor, columns: int) -> Tensor:
    """(B, columns) indices that reverse each row within its own length: the backward model starts at the text's last
    piece, and padding stays at the end. The permutation is its own inverse."""
    indices_BT = lengths.unsqueeze(1) - 1 - torch.arange(columns, device=lengths.device)
    return torch.where(indices_BT < 0, indices_BT + columns, indices_BT)


def turn(x_BTD: Tensor, turned_BT: Tensor) -> Tensor:
    """(B, T, D) with each row reversed by the indices of `turned`."""
    return x_BTD.gather(1, turned_BT.unsqueeze(-1).expand(-1, -1, x_BTD.shape[-1]))


def joined(ahead_BTD: Tensor, back_BTD: Tensor, turned_BT: Tensor) -> Tensor:
    """[forward; backward] outputs (B, T, 2 D) at each position; `back_BTD` is in reversed order, as from `turned`."""
    return torch.cat([ahead_BTD, turn(back_BTD, turned_BT)], -1)
