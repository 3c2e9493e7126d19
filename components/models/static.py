"""What the families of word vectors share: a vector a piece, whatever stands around it.

Shape suffixes: B batch rows, T positions, D width, V vocabulary.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from components.errors import DataError, nearest
from components.models.base import LanguageModel, ModelConfig
from components.tokenization.special import END

if TYPE_CHECKING:
    from components.tokenization import Tokenizer

Size = Annotated[int, Field(gt=0)]


class NegativeSamplingConfig(ModelConfig):
    """What the sampler of Mikolov et al. 2013b (Distributed Representations of Words and Phrases) draws.

    Attributes:
        width: D.
        context: most words on each side of a centre that count as its context; how many is drawn for each centre
            between 1 and this (the shrinking window of Mikolov et al. 2013a, section 3.2).
        negatives: k, the weight of the noise: so many noise words stand against each true one.
        noise_words: how many are really drawn for each row of a batch; all of its pairs share them (Ji et al. 2016).
        subsample: t, a word of relative frequency f is kept with probability sqrt(t / f) + t / f; 0 keeps all.
        power: noise is drawn in proportion to count^power.
    """

    width: Size = 100
    context: Size = 5
    negatives: Size = 5
    noise_words: Size = 64
    subsample: Annotated[float, Field(ge=0)] = 1e-3
    power: Annotated[float, Field(ge=0, le=1)] = 0.75


class StaticVectors(LanguageModel):
    """A table of vectors. There is one hidden state, the embedding, and one layer group."""

    # A vector knows nothing of what stands before it: a text of any length is read as a whole.
    carries_state = True

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, int] = {}

    @abstractmethod
    def embed(self, tokens: Tensor) -> Tensor:
        """The vectors (..., D) of pieces (...)."""

    def vectors(self) -> Tensor:
        """(V, D) float32, on the CPU: the vector of every piece, for neighbours, analogies and export."""
        device = next(self.parameters()).device
        with torch.no_grad():
            return self.embed(torch.arange(self.config.vocabulary, device=device)).float().cpu()

    def vector(self, word: str) -> Tensor:
        """(D,) float32, on the CPU, of a word as the tokenizer spells it.

        Raises:
            DataError: the word is not in the vocabulary (and the family cannot make up a vector for it).
        """
        if word not in self._places:
            raise DataError(f"{word!r} is not in the vocabulary{nearest(word, self._places)}")
        with torch.no_grad():
            return (
                self.embed(torch.tensor([self._places[word]], device=next(self.parameters()).device))[0].float().cpu()
            )

    def bind(self, tokenizer: Tokenizer) -> None:
        self._places = {piece: place for place, piece in enumerate(tokenizer.pieces)}

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        return [self.embed(tokens)]

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """The mean of the text's vectors: they know no order, so no position stands for the whole."""
        inside_BT1 = (torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]).unsqueeze(-1)
        return hidden.masked_fill(~inside_BT1, 0).sum(1) / lengths[:, None].to(hidden.dtype)

    def special_tokens(self, pieces: list[int]) -> list[int]:
        # A frame around the text would only be one more word in its mean; END stands for a text without words.
        return pieces or [END]

    def pair_tokens(self, first: list[int], second: list[int]) -> tuple[list[int], list[int]]:
        return self.special_tokens([*first, *second]), [0] * len(first) + [1] * len(second)

    def piece_embedding(self) -> nn.Parameter:
        return self.layer_groups()[0][0]
