"""Nearest neighbours in a table of word vectors.

Shape suffixes: V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from components.core.errors import DataError
from components.tokenization.special import FIRST_ORDINARY, SPECIAL_PIECES


def nearest_words(
    table_VD: Tensor, pieces: Sequence[str], query_D: Tensor, *, count: int = 10, without: Collection[str] = ()
) -> list[tuple[str, float]]:
    """The pieces with the highest cosine similarity to the query, in descending order, with their cosines.

    Raises:
        DataError: table and pieces differ in length, or the query is zero.
    """
    if len(table_VD) != len(pieces):
        raise DataError(f"{len(table_VD)} vectors for {len(pieces)} pieces; use those of the same model")
    if not bool(query_D.any()):
        raise DataError("the query is a zero vector, which has no neighbours")
    cosines_V = F.normalize(table_VD.float(), dim=1) @ F.normalize(query_D.float(), dim=0)
    # Special pieces are first in every vocabulary that was trained here, but absent in imported word lists.
    special = FIRST_ORDINARY if tuple(pieces[:FIRST_ORDINARY]) == SPECIAL_PIECES else 0
    cosines_V[:special] = -torch.inf
    excluded = [index for index, piece in enumerate(pieces) if piece in without] if without else []
    cosines_V[excluded] = -torch.inf
    best, indices = cosines_V.topk(min(count, len(pieces)))
    collected = zip(indices.tolist(), best.tolist(), strict=True)
    return [(pieces[index], cosine) for index, cosine in collected if cosine != float("-inf")]
