"""Hashed bigram embeddings: a row for every pair of adjacent pieces, added to the embedding of the second one.

    x_t = E[w_t] + G[h(w_{t-1}, w_t)],  h into a fixed number of buckets

A lookup costs nearly no arithmetic and gives the first layer the information of an n-gram model (Jordan et al. 2024,
modded-nanogpt, records of bigram hash embeddings; hashing: Weinberger et al. 2009). The rows begin at zero. Pieces are
hashed by their spelling, so the rows keep their meaning when the vocabulary changes.

Shape suffixes: B batch rows, T positions, D width, N buckets, V vocabulary.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import LanguageModel
from components.tokenization.special import END

if TYPE_CHECKING:
    from components.tokenization import Tokenizer

#: Odd factors below 2^31, so that products with 31-bit hashes fit into int64 (Knuth's multiplicative hashing).
FACTORS: Final = (0x4F1BBCD9, 0x42F5E53D)


class Bigrams(nn.Module):
    """The table of buckets; `hashes` (V,) are the hashes of the pieces, their ids before `bind`."""

    hashes: Tensor

    def __init__(self, buckets: int, width: int, *, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(buckets, width))
        self.register_buffer("hashes", torch.arange(vocabulary), persistent=False)

    def bind(self, tokenizer: Tokenizer) -> None:
        """Hash the pieces by their spelling."""
        hashes = [zlib.crc32(piece.encode()) >> 1 for piece in tokenizer.pieces]
        self.hashes = torch.tensor(hashes, device=self.table.device)

    def remap(self, rows: Tensor) -> None:
        """Change the vocabulary as `LanguageModel.remap_vocabulary`; new pieces are hashed by `bind`."""
        known = self.hashes[rows.to(self.hashes.device).clamp(min=0)]
        self.hashes = torch.where(rows.to(known.device) >= 0, known, torch.arange(len(rows), device=known.device))

    def buckets(self, tokens_BT: Tensor, before_B: Tensor | None = None) -> Tensor:
        """(B, T) buckets.

        Args:
            tokens_BT: pieces; ids beyond the vocabulary count as the last piece.
            before_B: the piece before each row; None: END.
        """
        tokens_BT = tokens_BT.clamp(max=len(self.hashes) - 1)
        first_B = torch.full_like(tokens_BT[:, 0], END) if before_B is None else before_B
        previous_BT = torch.cat([first_B.unsqueeze(1), tokens_BT[:, :-1]], 1)
        return self._hash(previous_BT, tokens_BT)

    def _hash(self, previous_BT: Tensor, tokens_BT: Tensor) -> Tensor:
        mixed_BT = (self.hashes[previous_BT] * FACTORS[0]) ^ (self.hashes[tokens_BT] * FACTORS[1])
        # The upper bits of a product depend on all bits of its factors.
        return (mixed_BT >> 20) % len(self.table)

    def forward(
        self, tokens_BT: Tensor, *, before_B: Tensor | None = None, positions_BT: Tensor | None = None
    ) -> Tensor:
        """(B, T, D) embeddings of the pairs.

        Args:
            before_B: as for `buckets`.
            positions_BT: position of each piece in its text, if a row holds several texts: END precedes each.
        """
        buckets_BT = self.buckets(tokens_BT, before_B)
        if positions_BT is not None:
            alone_BT = tokens_BT.clamp(max=len(self.hashes) - 1)
            buckets_BT = torch.where(
                positions_BT == 0, self._hash(torch.full_like(alone_BT, END), alone_BT), buckets_BT
            )
        return F.embedding(buckets_BT, self.table)


class BigramModel(LanguageModel):
    """A language model whose embeddings may include those of bigrams."""

    bigrams: Bigrams | None

    def bind(self, tokenizer: Tokenizer) -> None:
        if self.bigrams is not None:
            self.bigrams.bind(tokenizer)

    def remap_vocabulary(self, rows: Tensor) -> None:
        super().remap_vocabulary(rows)
        if self.bigrams is not None:
            self.bigrams.remap(rows)
