"""Embeddings to start from: word vectors of the same text, by factorising how often pieces stand near each other.

Levy and Goldberg 2014 (Neural Word Embedding as Implicit Matrix Factorization): skip-gram with negative sampling
factorises pointwise mutual information, so a singular value decomposition of it gives vectors of that kind in seconds:

    PMI+(w, c) = max(0, log #(w, c) / (#(w) p(c)))   with p(c) ~ #(c)^0.75        vectors = U sqrt(S)

by randomised subspace iteration (Halko, Martinsson and Tropp 2011). A masked language model, which learns from 15% of
its pieces only, gains most by it.
"""

from __future__ import annotations

import warnings
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.pretraining.cooccurrence import STRETCH, count_pairs
from components.tokenization.special import FIRST_ORDINARY
from components.training import threads
from components.training.windows import Tokens

#: Weight of a pair at distance 1, 2 ..., as word2vec's shrinking window gives on average.
WEIGHTS: Final = (1.0, 0.8, 0.6, 0.4, 0.2)
#: Pieces that are counted, in stretches spread evenly over the text.
MOST_PIECES: Final = 8_000_000
OVERSAMPLING: Final = 20
ITERATIONS: Final = 4
#: Ridge penalty of the map between two sets of vectors.
RIDGE: Final = 10.0


# On one thread: products and decompositions round otherwise on two, and a library may use fewer than it was given.
@threads.limited(1)
def cooccurrence_vectors(store: Tokens, *, vocabulary: int, width: int) -> Tensor:
    """(V, width) float32 vectors of unit length, centred; the same for the same text, whatever the number of threads.

    Pieces that the text does not hold get the vector at the centre. Dimensions beyond the vocabulary are zero.
    """
    counts = _counts(store, vocabulary)
    totals = counts.sum(1).to_dense()
    context = totals.pow(0.75)
    context /= context.sum()
    rows, columns = counts.indices()
    information = (counts.values() / (totals[rows] * context[columns])).log()
    kept = information > 0
    matrix = torch.sparse_coo_tensor(
        counts.indices()[:, kept], information[kept], (vocabulary, vocabulary), check_invariants=False
    )
    with warnings.catch_warnings():
        # "Sparse CSR tensor support is in beta state": its products are three times as fast as those of COO.
        warnings.simplefilter("ignore", UserWarning)
        by_row, by_column = matrix.to_sparse_csr(), matrix.t().to_sparse_csr()
    rank = min(width, vocabulary)
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(vocabulary, min(rank + OVERSAMPLING, vocabulary), generator=generator)
    for _ in range(ITERATIONS):
        basis = torch.linalg.qr(by_row @ (by_column @ basis)).Q
    small = (by_column @ basis).t()
    left, values, _ = torch.linalg.svd(small, full_matrices=False)
    vectors = torch.zeros(vocabulary, width)
    vectors[:, :rank] = (basis @ left)[:, :rank] * values[:rank].sqrt()
    # A piece that never stood near another has no direction but that of rounding errors.
    vectors[totals == 0] = 0
    vectors /= vectors.norm(dim=1, keepdim=True).clamp_min(1e-6)
    return vectors - vectors.mean(0)


@threads.limited(1)
def start_embeddings(table: nn.Parameter, vectors: Tensor, *, known: NDArray[np.bool_] | None = None) -> None:
    """Put vectors (V, D) into an embedding table (V, D), which keeps its scale.

    Args:
        known: (V,) rows that are learned already and stay as they are. The vectors of the others are brought into the
            table's space by the linear map that fits best on the known ones (Mikolov, Le and Sutskever 2013). None:
            the whole table is fresh.
    """
    with torch.no_grad():
        if known is None:
            table.copy_(vectors * (table.std() / vectors.std()))
            return
        anchors = torch.from_numpy(known).clone()
        anchors[:FIRST_ORDINARY] = False
        new = torch.from_numpy(~known)
        if int(anchors.sum()) < 2 or not bool(new.any()):
            return
        inputs = torch.cat([vectors / vectors.std(), torch.ones(len(vectors), 1)], dim=1).double()
        learned = table[anchors].double()
        square = inputs[anchors].t() @ inputs[anchors] + RIDGE * torch.eye(inputs.shape[1], dtype=torch.float64)
        mapped = inputs[new] @ torch.linalg.solve(square, inputs[anchors].t() @ learned)
        # A regression towards the mean: without this new pieces would be shorter than old ones.
        table[new] = (mapped * (learned.std() / mapped.std().clamp_min(1e-6))).float()


def _counts(store: Tokens, vocabulary: int) -> Tensor:
    """How often pieces stand near each other, weighted and symmetric: a coalesced sparse (V, V) matrix."""
    stretches = max(1, min(store.tokens, MOST_PIECES) // STRETCH)
    length = min(STRETCH, store.tokens)
    starts = np.linspace(0, store.tokens - length, stretches).astype(np.int64)
    keys, counts = count_pairs(
        ((store.span(int(start), length), length) for start in starts), vocabulary=vocabulary, weights=WEIGHTS
    )
    low, high = torch.from_numpy(np.stack(np.divmod(keys, vocabulary)))
    values = torch.from_numpy(counts.astype(np.float32))
    # Both ways round; the two of a piece beside itself fall on one place and are added up.
    return torch.sparse_coo_tensor(
        torch.stack([torch.cat([low, high]), torch.cat([high, low])]),
        torch.cat([values, values]),
        (vocabulary, vocabulary),
        check_invariants=False,
    ).coalesce()
