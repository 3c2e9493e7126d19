"""Models that read a text from its end, alone or beside one that reads it from its beginning.

Shapes: B texts, T pieces (padding included), D width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def turned(lengths: Tensor, columns: int) -> Tensor:
    """(B, columns) places that turn each row round within its own length: the backward model starts at the text's true
    end, and padding stays behind it. Turning round twice gives the first order again."""
    places_BT = lengths.unsqueeze(1) - 1 - torch.arange(columns, device=lengths.device)
    return torch.where(places_BT < 0, places_BT + columns, places_BT)


def turn(x_BTD: Tensor, turned_BT: Tensor) -> Tensor:
    """The rows of (B, T, D) in the order of `turned`."""
    return x_BTD.gather(1, turned_BT.unsqueeze(-1).expand(-1, -1, x_BTD.shape[-1]))


def joined(ahead_BTD: Tensor, back_BTD: Tensor, turned_BT: Tensor) -> Tensor:
    """Forward outputs and those of the turned text, side by side at each place of the text."""
    return torch.cat([ahead_BTD, turn(back_BTD, turned_BT)], -1)


def both_ends(hidden_BTD: Tensor, lengths: Tensor) -> Tensor:
    """(B, D) of both directions joined: between the special pieces at both ends, the forward half after the text's last
    piece and the backward half after (in its own order) the first."""
    ahead, back = hidden_BTD.chunk(2, dim=-1)
    rows = torch.arange(hidden_BTD.shape[0], device=hidden_BTD.device)
    return torch.cat([ahead[rows, lengths - 2], back[rows, torch.ones_like(lengths)]], dim=-1)
