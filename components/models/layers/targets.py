"""Targets of causal models on whole texts: pairs of a state and the piece that it predicts.

Shape suffixes: B texts, T pieces (padding included), D width, N pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor


def following(hidden_BTD: Tensor, tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """States (N, D) at all pieces but each text's last, and the following pieces (N,)."""
    inside_BT = _inside(tokens_BT, lengths)
    return hidden_BTD[:, :-1][inside_BT], tokens_BT[:, 1:][inside_BT]


def preceding(hidden_BTD: Tensor, tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """States (N, D) at all pieces but each text's first, and the preceding pieces (N,), for backward models."""
    inside_BT = _inside(tokens_BT, lengths)
    return hidden_BTD[:, 1:][inside_BT], tokens_BT[:, :-1][inside_BT]


def _inside(tokens_BT: Tensor, lengths: Tensor) -> Tensor:
    """(B, T - 1) whether a column and the next one are both within the text."""
    return torch.arange(1, tokens_BT.shape[1], device=tokens_BT.device) < lengths.unsqueeze(1)
