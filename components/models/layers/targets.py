"""Targets of causal models on whole texts: pairs of a state and the piece that it predicts.

Shape suffixes: B texts, T pieces (padding included), D width, N pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from components.models.layers.host import on_host, places


def following(hidden_BTD: Tensor, tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """States (N, D) at all pieces but each text's last, and the following pieces (N,)."""
    inside = _inside(tokens_BT, lengths)
    return hidden_BTD[:, :-1][inside], tokens_BT[:, 1:][inside]


def preceding(hidden_BTD: Tensor, tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """States (N, D) at all pieces but each text's first, and the preceding pieces (N,), for backward models."""
    inside = _inside(tokens_BT, lengths)
    return hidden_BTD[:, 1:][inside], tokens_BT[:, :-1][inside]


def _inside(tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    """Rows and columns, of T - 1, where a column and the next one are both within the text."""
    inside_BT = torch.arange(1, tokens_BT.shape[1]) < on_host(lengths).unsqueeze(1)
    return places(inside_BT, tokens_BT.device)
