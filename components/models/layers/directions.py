"""Reversal of the texts of a batch, for backward and bidirectional models, and the pieces that states predict.

Shape suffixes: B texts, T pieces (padding included), D width, N pairs of a state and the piece that it predicts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from components.models.layers.host import on_host, places


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


def following(hidden_BTD: Tensor, tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """States (N, D) at all pieces but each text's last, and the following pieces (N,)."""
    inside = _inside(tokens_BT, lengths)
    return hidden_BTD[:, :-1][inside], tokens_BT[:, 1:][inside]


def preceding(hidden_BTD: Tensor, tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """States (N, D) at all pieces but each text's first, and the preceding pieces (N,), for backward models."""
    inside = _inside(tokens_BT, lengths)
    return hidden_BTD[:, 1:][inside], tokens_BT[:, :-1][inside]


def _inside(tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    inside_BT = torch.arange(1, tokens_BT.shape[1]) < on_host(lengths).unsqueeze(1)
    return places(inside_BT, tokens_BT.device)
