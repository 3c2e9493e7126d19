"""Initialisation of embeddings with word vectors of the same text, by factorising the co-occurrence matrix.

Levy and Goldberg 2014 (Neural Word Embedding as Implicit Matrix Factorization): skip-gram with negative sampling
implicitly factorises pointwise mutual information, so its truncated singular value decomposition gives similar vectors
in seconds:

    PMI+(w, c) = max(0, log #(w, c) / (#(w) p(c)))   with p(c) ~ #(c)^0.75        vectors = U sqrt(S)

computed by randomised subspace iteration (Halko, Martinsson and Tropp 2011). Masked language models, which are trained
on 15% of the pieces, benefit most.
"""

from __future__ import annotations

import warnings
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.pretraining.cooccurrence import CHUNK, count_pairs
from components.tokenization.special import FIRST_ORDINARY
from components.training import threads
from components.training.windows import Tokens

#: Weight of a pair at distance 1, 2 ...: the expectation for word2vec's random window of 1 to 5.
WEIGHTS: Final = (1.0, 0.8, 0.6, 0.4, 0.2)
#: Maximum number of pieces that are counted, in evenly spaced chunks of the text.
MAX_PIECES: Final = 8_000_000
OVERSAMPLING: Final = 20
ITERATIONS: Final = 4
#: Ridge penalty of the linear map between two vector spaces.
RIDGE: Final = 10.0


# One thread, because the rounding of products and decompositions depends on the number of threads.
@threads.limited(1)
def cooccurrence_vectors(store: Tokens, *, vocabulary: int, width: int) -> Tensor:
    """(V, width) float32: vectors normalised to unit length, then centred; the same for any number of threads.

    Pieces that do not occur in the text have the zero vector before centring. Dimensions beyond the vocabulary size are
    zero.
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
        # "Sparse CSR tensor support is in beta state": products in CSR are three times as fast as in COO.
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
    # The vector of a piece without co-occurrences consists of rounding errors.
    vectors[totals == 0] = 0
    vectors /= vectors.norm(dim=1, keepdim=True).clamp_min(1e-6)
    return vectors - vectors.mean(0)


@threads.limited(1)
def initialise_embeddings(table: nn.Parameter, vectors: Tensor, *, known: NDArray[np.bool_] | None = None) -> None:
    """Initialise an embedding table (V, D) with vectors (V, D). The scale of the table does not change.

    Computed on the CPU, so that the result does not depend on the device of the table.

    Args:
        table: on any device.
        vectors: on the CPU.
        known: (V,) bool, rows that are trained already and remain unchanged. The vectors of the other rows are mapped
            to the table's space by a linear map, fitted to the known rows by ridge regression (after Mikolov, Le and
            Sutskever 2013). None: no row is trained.
    """
    with torch.no_grad():
        if known is None:
            table.copy_(vectors * (table.cpu().std() / vectors.std()))
            return
        anchors = torch.from_numpy(known).clone()
        anchors[:FIRST_ORDINARY] = False
        new = torch.from_numpy(~known)
        if int(anchors.sum()) < 2 or not bool(new.any()):
            return
        inputs = torch.cat([vectors / vectors.std(), torch.ones(len(vectors), 1)], dim=1).double()
        rows = table.cpu()
        learned = rows[anchors].double()
        square = inputs[anchors].t() @ inputs[anchors] + RIDGE * torch.eye(inputs.shape[1], dtype=torch.float64)
        mapped = inputs[new] @ torch.linalg.solve(square, inputs[anchors].t() @ learned)
        # Regression shrinks the predictions, so they are rescaled to the std of the known rows.
        rows[new] = (mapped * (learned.std() / mapped.std().clamp_min(1e-6))).float()
        table.copy_(rows)


def _counts(store: Tokens, vocabulary: int) -> Tensor:
    """Weighted symmetric co-occurrence counts: a coalesced sparse (V, V) matrix."""
    chunks = max(1, min(store.tokens, MAX_PIECES) // CHUNK)
    length = min(CHUNK, store.tokens)
    starts = np.linspace(0, store.tokens - length, chunks).astype(np.int64)
    keys, counts = count_pairs(
        ((store.span(int(start), length), length) for start in starts), vocabulary=vocabulary, weights=WEIGHTS
    )
    low, high = torch.from_numpy(np.stack(np.divmod(keys, vocabulary)))
    values = torch.from_numpy(counts.astype(np.float32))
    # Both (i, j) and (j, i); on the diagonal the two are summed by coalescing.
    return torch.sparse_coo_tensor(
        torch.stack([torch.cat([low, high]), torch.cat([high, low])]),
        torch.cat([values, values]),
        (vocabulary, vocabulary),
        check_invariants=False,
    ).coalesce()
