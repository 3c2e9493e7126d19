"""What a table of word vectors says: the words nearest to one, and the word that completes an analogy.

Shape suffixes: V vocabulary, D width, Q queries.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from components.errors import DataError
from components.tokenization.special import FIRST_ORDINARY, SPECIAL_PIECES


def nearest_words(
    table_VD: Tensor, pieces: Sequence[str], query_D: Tensor, *, count: int = 10, without: Collection[str] = ()
) -> list[tuple[str, float]]:
    """The pieces whose vectors point most nearly the way of the query, with their cosines, nearest first.

    Args:
        table_VD: vectors of `pieces`; a zero vector is near nothing (its cosine is 0).
        query_D: of any length but zero.
        count: how many; fewer if there are no more.
        without: pieces that are left out, beside the special ones: the query itself is its own nearest.

    Raises:
        DataError: table and pieces are of different lengths, or the query is zero.
    """
    if len(table_VD) != len(pieces):
        raise DataError(f"{len(table_VD)} vectors for {len(pieces)} pieces; take both from the same model")
    if not bool(query_D.any()):
        raise DataError("a zero vector points nowhere, and has no neighbours")
    cosines_V = F.normalize(table_VD.float(), dim=1) @ F.normalize(query_D.float(), dim=0)
    # Special pieces stand at the front of every vocabulary made here, but of no imported list of words.
    special = FIRST_ORDINARY if tuple(pieces[:FIRST_ORDINARY]) == SPECIAL_PIECES else 0
    cosines_V[:special] = -torch.inf
    left_out = [place for place, piece in enumerate(pieces) if piece in without] if without else []
    cosines_V[left_out] = -torch.inf
    best, places = cosines_V.topk(min(count, len(pieces)))
    found = zip(places.tolist(), best.tolist(), strict=True)
    return [(pieces[place], cosine) for place, cosine in found if cosine != float("-inf")]


def analogy(
    table_VD: Tensor, pieces: Sequence[str], vectors_3D: Tensor, words: Sequence[str], *, count: int = 10
) -> list[tuple[str, float]]:
    """What is to c as b is to a: the words x of greatest cos(x, b) - cos(x, a) + cos(x, c) (3CosAdd).

    Mikolov, Yih and Zweig 2013 (Linguistic Regularities in Continuous Space Word Representations); the three words
    themselves are left out. The score that comes with each word is its cosine to the sum.

    Args:
        table_VD, pieces, count: as for `nearest_words`.
        vectors_3D: of a, b and c, each of any length but zero.
        words: a, b and c.

    Raises:
        DataError: as `nearest_words`; one of the three vectors is zero.
    """
    for word, vector_D in zip(words, vectors_3D, strict=True):
        if not bool(vector_D.any()):
            raise DataError(f"{word!r} has a zero vector: it says nothing")
    a_D, b_D, c_D = F.normalize(vectors_3D.float(), dim=1)
    return nearest_words(table_VD, pieces, b_D - a_D + c_D, count=count, without=words)
