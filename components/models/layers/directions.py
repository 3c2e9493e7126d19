"""Models that read a text from its end, separately or together with one that reads it from its beginning.

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
    """The positions of (B, T, D) in the order of `turned`."""
    return x_BTD.gather(1, turned_BT.unsqueeze(-1).expand(-1, -1, x_BTD.shape[-1]))


def joined(ahead_BTD: Tensor, back_BTD: Tensor, turned_BT: Tensor) -> Tensor:
    """[forward; backward] outputs (B, T, 2 D) at each position; the backward ones come in the order of `turned`."""
    return torch.cat([ahead_BTD, turn(back_BTD, turned_BT)], -1)
