"""What causal models predict of whole texts: pairs of a state and the piece that it has to say.

Shape suffixes: B texts, T pieces (padding included), D width, N pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor


def following(hidden_BTD: Tensor, tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(N, D) states of all pieces but each text's last, and (N,) the piece after each."""
    inside_BT = _inside(tokens_BT, lengths)
    return hidden_BTD[:, :-1][inside_BT], tokens_BT[:, 1:][inside_BT]


def preceding(hidden_BTD: Tensor, tokens_BT: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(N, D) states of all pieces but each text's first, and (N,) the piece before each: of a model that reads a text
    from its end."""
    inside_BT = _inside(tokens_BT, lengths)
    return hidden_BTD[:, 1:][inside_BT], tokens_BT[:, :-1][inside_BT]


def _inside(tokens_BT: Tensor, lengths: Tensor) -> Tensor:
    """(B, T - 1) whether a column and the one after it are both real."""
    return torch.arange(1, tokens_BT.shape[1], device=tokens_BT.device) < lengths.unsqueeze(1)
