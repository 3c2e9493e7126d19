"""Base class of static word vectors: one vector per piece, independent of context.

Shape suffixes: B batch rows, T positions, D width, V vocabulary.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from components.errors import DataError, nearest
from components.models.base import LanguageModel, ModelConfig, Size
from components.tokenization.special import END

if TYPE_CHECKING:
    from components.tokenization import Tokenizer


class NegativeSamplingConfig(ModelConfig):
    """Width, and settings of the sampler (Mikolov et al. 2013b, Distributed Representations of Words and Phrases).

    Attributes:
        width: D.
        context: maximum number of context words on each side; the number is sampled per centre from 1 to this (dynamic
            window; Mikolov et al. 2013a, section 3.2).
        negatives: k, number of noise words per true word in the objective.
        noise_words: number of noise words sampled per batch row, shared by all its pairs (Ji et al. 2016).
        subsample: t; a word of relative frequency f is kept with probability sqrt(t / f) + t / f; 0 keeps all.
        power: exponent of the noise distribution, P(n) ~ count(n)^power.
    """

    width: Size = 100
    context: Size = 5
    negatives: Size = 5
    noise_words: Size = 64
    subsample: Annotated[float, Field(ge=0)] = 1e-3
    power: Annotated[float, Field(ge=0, le=1)] = 0.75


class StaticVectors(LanguageModel):
    """A table of vectors, with one hidden state (the embedding) and one layer group."""

    # Vectors do not depend on context, so a text of any length is one row.
    carries_state = True

    def __init__(self) -> None:
        super().__init__()
        self._indices: dict[str, int] = {}

    @abstractmethod
    def embed(self, tokens: Tensor) -> Tensor:
        """The vectors (..., D) of pieces (...)."""

    def vectors(self) -> Tensor:
        """(V, D) float32, on the CPU: the vector of every piece, for neighbours, analogies and export."""
        device = next(self.parameters()).device
        with torch.no_grad():
            return self.embed(torch.arange(self.config.vocabulary, device=device)).float().cpu()

    def vector(self, word: str) -> Tensor:
        """(D,) float32, on the CPU: the vector of a word, which is spelt as in the tokenizer's vocabulary.

        Raises:
            DataError: the word is not in the vocabulary, and the family has no vectors for unseen words.
        """
        if word not in self._indices:
            raise DataError(f"{word!r} is not in the vocabulary{nearest(word, self._indices)}")
        with torch.no_grad():
            return (
                self.embed(torch.tensor([self._indices[word]], device=next(self.parameters()).device))[0].float().cpu()
            )

    def bind(self, tokenizer: Tokenizer) -> None:
        self._indices = {piece: index for index, piece in enumerate(tokenizer.pieces)}

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        return [self.embed(tokens)]

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """The mean of the text's vectors."""
        inside_BT1 = (torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]).unsqueeze(-1)
        return hidden.masked_fill(~inside_BT1, 0).sum(1) / lengths[:, None].to(hidden.dtype)

    def special_tokens(self, pieces: list[int]) -> list[int]:
        # No special pieces, which would be part of the mean; END represents an empty text.
        return pieces or [END]

    def pair_tokens(self, first: list[int], second: list[int]) -> tuple[list[int], list[int]]:
        return self.special_tokens([*first, *second]), [0] * len(first) + [1] * len(second)

    def piece_embedding(self) -> nn.Parameter:
        return self.layer_groups()[0][0]
