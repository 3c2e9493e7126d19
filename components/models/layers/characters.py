"""Word vectors from characters: spelling tables, and the character CNN with highway layers.

Kim et al. 2016 (Character-Aware Neural Language Models), as used by Jozefowicz et al. 2016 and Peters et al. 2018. With
x the character embeddings of a word, for each filter width w:

    u_w = relu(max_p (W_w x[p : p + w] + b_w))       y = [u_1; u_2; ...]
    y <- g * relu(W y + b) + (1 - g) * y             g = sigmoid(W_g y + b_g), for each highway layer (Srivastava 2015)

and a projection to the width of the language model.

Shape suffixes: N words, C characters per word, E character width, F filters of all widths, D output width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.layers.fixed_shapes import is_fixed
from components.models.layers.linear import Linear
from components.tokenization.special import SPECIAL_PIECES

#: Characters per word, begin and end included (Peters et al. 2018); bytes of UTF-8, as in the published code.
WORD_CHARACTERS: Final = 50
#: Numbers of characters, and number of words, of the batches in which words are computed where shapes are fixed.
FIXED_CHARACTERS: Final = (8, 16, WORD_CHARACTERS)
FIXED_WORDS: Final = 32
#: Ids after those of the 256 bytes.
BEGIN: Final = 256
FINISH: Final = 257
PADDING: Final = 258
#: Each special piece is one character of its own.
FIRST_SPECIAL: Final = 259
CHARACTERS: Final = FIRST_SPECIAL + len(SPECIAL_PIECES)


def spell(words: Iterable[str]) -> Tensor:
    """(N, WORD_CHARACTERS) int16: begin, the word's first 48 bytes of UTF-8, end, padding."""
    return _rows(list(word.encode()[: WORD_CHARACTERS - 2]) for word in words)


def spelling_table(pieces: Sequence[str]) -> Tensor:
    """(V, WORD_CHARACTERS) int16, the row of each piece; `pieces` begin with the special ones."""
    special = len(SPECIAL_PIECES)
    return torch.cat([_rows([id_] for id_ in range(FIRST_SPECIAL, CHARACTERS)), spell(pieces[special:])])


def _rows(words: Iterable[list[int]]) -> Tensor:
    rows = []
    for characters in words:
        row = [BEGIN, *characters, FINISH]
        rows.append(row + [PADDING] * (WORD_CHARACTERS - len(row)))
    return torch.from_numpy(np.asarray(rows, dtype=np.int16).reshape(-1, WORD_CHARACTERS))


class Highway(nn.Module):
    """g * relu(W y + b) + (1 - g) * y, initialised with nearly closed gates, close to the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = Linear(width, width)
        self.gate = Linear(width, width)
        for layer in (self.transform, self.gate):
            nn.init.normal_(layer.weight, std=width**-0.5)
        nn.init.zeros_(self.transform.bias)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, y_NF: Tensor) -> Tensor:
        return torch.lerp(y_NF, F.relu(self.transform(y_NF)), self.gate(y_NF).sigmoid())


class CharacterCNN(nn.Module):
    """Character CNN.

    Args:
        width: E.
        filters: (width of the filter in characters, number of such filters), F in total.
        highway: number of highway layers.
        output: D.
    """

    def __init__(self, *, width: int, filters: Sequence[tuple[int, int]], highway: int, output: int) -> None:
        super().__init__()
        features = sum(count for _, count in filters)
        self.widest = max(size for size, _ in filters)
        self.characters = nn.Parameter(torch.empty(CHARACTERS, width).uniform_(-1, 1))
        convolutions = [nn.Conv1d(width, count, size) for size, count in filters]
        self.filters = nn.ModuleList(convolutions)
        self.highways = nn.ModuleList(Highway(features) for _ in range(highway))
        self.projection = Linear(features, output)
        for conv in convolutions:
            # He et al. 2015. The published +-0.05 makes outputs so small that small models learn slowly at first.
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            nn.init.zeros_(conv.get_parameter("bias"))
        nn.init.normal_(self.projection.weight, std=features**-0.5)
        nn.init.zeros_(self.projection.bias)

    def forward(self, spelt_NC: Tensor) -> Tensor:
        """(N, C) character ids -> (N, D)."""
        if is_fixed():
            return self._in_fixed_batches(spelt_NC)
        if not spelt_NC.is_cuda:
            spelt_NC = spelt_NC[:, : int(_lengths(spelt_NC).max()) + self.widest]
        return self._compute(spelt_NC)

    def _in_fixed_batches(self, spelt_NC: Tensor) -> Tensor:
        """The shape in which a word is computed depends on its own length only."""
        lengths_N, shorter, rows, found = _lengths(spelt_NC), 0, [], []
        for longest in FIXED_CHARACTERS:
            for part in ((lengths_N > shorter) & (lengths_N <= longest)).nonzero()[:, 0].split(FIXED_WORDS):
                if len(part):
                    padded = torch.cat([part, part[:1].expand(FIXED_WORDS - len(part))])
                    rows.append(part)
                    found.append(self._compute(spelt_NC[padded, : longest + self.widest])[: len(part)])
            shorter = longest
        return torch.cat(found)[torch.cat(rows).argsort()]

    def _compute(self, spelt_NC: Tensor) -> Tensor:
        # Convolution windows of padding only all have the same value, so the maximum needs only one of them.
        x_NEC = F.embedding(spelt_NC.int(), self.characters).transpose(1, 2)
        # `max`, because the backward pass of `amax` takes twice as long.
        y_NF = F.relu(torch.cat([conv(x_NEC).max(-1).values for conv in self.filters], dim=1))
        for highway in self.highways:
            y_NF = highway(y_NF)
        projected: Tensor = self.projection(y_NF)
        return projected


def _lengths(spelt_NC: Tensor) -> Tensor:
    """(N,) number of characters of words (N, C)."""
    return (spelt_NC != PADDING).sum(1)
