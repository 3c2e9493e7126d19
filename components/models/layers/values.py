"""Value embeddings: rows of the pieces that are added to the values of attention in the first and the last blocks.

    V = s_0 W_V x + s_1 U[w]        with s_0 and s_1 learned for every block that has a table U

Jordan et al. 2024 (modded-nanogpt, records of value embeddings), after Zhou et al. 2024 (Value Residual Learning): the
upper blocks read what the pieces were, past the residual stream. The first and the last k of L blocks share k tables:
blocks i and L - k + i have table i. A lookup costs nearly no arithmetic. Tables begin at zero and the factors at one,
so that a model begins as one without tables.

Shape suffixes: B batch rows, T positions, D width, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.layers.attention import Values
from components.models.layers.bigrams import BigramModel
from components.models.layers.transformer import TransformerConfig
from components.models.layers.vocabulary import remapped


class ValueEmbeddings(nn.Module):
    """k tables (V, D) and the factors (2 k, 2) of the blocks that have one, in the order of the blocks.

    Args:
        tables: k, at most half of the blocks.
        width: D.
        layers: L.
        vocabulary: V.
    """

    def __init__(self, tables: int, width: int, *, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.tables = nn.ParameterList(torch.zeros(vocabulary, width) for _ in range(tables))
        self.scales = nn.Parameter(torch.ones(2 * tables, 2))
        self.layers = layers

    @classmethod
    def of(cls, config: TransformerConfig) -> ValueEmbeddings | None:
        """Those of the settings; None without the key `value_embeddings`."""
        if not config.value_embeddings:
            return None
        return cls(config.value_embeddings, config.width, layers=config.layers, vocabulary=config.vocabulary)

    def forward(self, tokens_BT: Tensor) -> list[Values | None]:
        """For every block the rows (B, T, D) of the pieces and their factors; None without a table. The rows of ids
        beyond the vocabulary are zero."""
        count = len(self.tables)
        known_BT1 = (tokens_BT < len(self.tables[0])).unsqueeze(-1)
        ids_BT = tokens_BT.clamp(max=len(self.tables[0]) - 1)
        rows = [F.embedding(ids_BT, table) * known_BT1 for table in self.tables]
        first = [Values(rows[index], self.scales[index]) for index in range(count)]
        last = [Values(rows[index], self.scales[count + index]) for index in range(count)]
        return [*first, *[None] * (self.layers - 2 * count), *last]

    def remap(self, rows: Tensor) -> None:
        """Change the vocabulary as `LanguageModel.remap_vocabulary`."""
        self.tables = nn.ParameterList(remapped(table, rows) for table in self.tables)


class ValueModel(BigramModel):
    """A Transformer that may have value embeddings."""

    values: ValueEmbeddings | None

    def remap_vocabulary(self, rows: Tensor) -> None:
        super().remap_vocabulary(rows)
        if self.values is not None:
            self.values.remap(rows)

    def block_values(self, tokens_BT: Tensor, layers: int) -> list[Values | None]:
        """For each of the blocks what is mixed into its values; None for nothing."""
        return [None] * layers if self.values is None else self.values(tokens_BT)
