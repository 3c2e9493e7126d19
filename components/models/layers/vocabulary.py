"""Lookup in tables with one row per piece, and re-mapping of such parameters to another vocabulary.

Shape suffixes: V vocabulary, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def looked_up(tokens: Tensor, table_VD: Tensor) -> Tensor:
    """(...) ids -> (..., D). On the CPU the result has the memory layout of the ids; on a GPU the backward pass of an
    index adds up the rows one after the other."""
    return F.embedding(tokens, table_VD) if tokens.is_cuda else table_VD[tokens]


def remapped(table: Tensor, rows: Tensor) -> nn.Parameter:
    """The table (new V, ...) whose row i is row `rows[i]` of the old one (V, ...), or the mean of all its rows where
    `rows[i]` is -1 (Howard and Ruder 2018)."""
    with torch.no_grad():
        rows = rows.to(table.device)
        mean = table.float().mean(0).to(table.dtype)
        known = (rows >= 0).view(-1, *[1] * (table.dim() - 1))
        return nn.Parameter(torch.where(known, table[rows.clamp_min(0)], mean))
