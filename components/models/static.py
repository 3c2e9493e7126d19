"""Static word vectors, one per piece, independent of context; and skip-gram and CBOW with negative sampling.

Mikolov et al. 2013b (Distributed Representations of Words and Phrases and their Compositionality), equation 4:

    log s(o_c . i_w) + k E_{n ~ P} [log s(-o_n . i_w)]      for a centre w and each word c of its context, s the sigmoid

The expectation is estimated by S noise words that all pairs of a row share, so that it is one matrix product per row
(Ji, Satish, Li and Dubey 2016, Parallelizing Word2Vec in Shared and Distributed Memory, section 3).

Shape suffixes: B batch rows, T words per row, S noise words per row, U = T + S, D width, V vocabulary.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn
from torch.nn import functional as F

from components.core.errors import DataError, nearest
from components.models.base import LanguageModel, ModelConfig, Size
from components.models.sentence import pooled
from components.tokenization.special import END

if TYPE_CHECKING:
    from components.tokenization import Tokenizer


class NegativeSamplingConfig(ModelConfig):
    """Width, and settings of the sampler.

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
    subsample: NonNegativeFloat = 1e-3
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
        return pooled(hidden, lengths, "mean")

    def special_tokens(self, pieces: list[int]) -> list[int]:
        # No special pieces, which would be part of the mean; END represents an empty text.
        return pieces or [END]

    def pair_tokens(self, first: list[int], second: list[int]) -> tuple[list[int], list[int]]:
        return self.special_tokens([*first, *second]), [0] * len(first) + [1] * len(second)

    def piece_embedding(self) -> nn.Parameter:
        return self.layer_groups()[0][0]


def contexts(left_BT: Tensor, right_BT: Tensor) -> Tensor:
    """(B, T, T) bool: whether word j is in the context of centre i, which has `left` and `right` words."""
    positions_T = torch.arange(left_BT.shape[1], device=left_BT.device)
    distance_TT = positions_T - positions_T.unsqueeze(1)
    return (distance_TT <= right_BT.unsqueeze(2)) & (-distance_TT <= left_BT.unsqueeze(2)) & (distance_TT != 0)


def skip_gram(in_BTD: Tensor, out_BUD: Tensor, left_BT: Tensor, right_BT: Tensor, *, negatives: int) -> Tensor:
    """Sum over all pairs of -log s(o_c . i_w) - k mean_n log s(-o_n . i_w), in nats, float32.

    Args:
        in_BTD: input vectors of the centres.
        out_BUD: output vectors of the row's words, then of its noise words.
        left_BT, right_BT: number of context words on each side of each centre.
        negatives: k.
    """
    words = in_BTD.shape[1]
    scores_BTU = torch.bmm(in_BTD, out_BUD.transpose(1, 2)).float()
    true = F.softplus(-scores_BTU[..., :words]) * contexts(left_BT, right_BT)
    noise_BT = F.softplus(scores_BTU[..., words:]).mean(-1) * (left_BT + right_BT)
    return true.sum() + negatives * noise_BT.sum()


def cbow(in_BTD: Tensor, out_BUD: Tensor, left_BT: Tensor, right_BT: Tensor, *, negatives: int) -> Tensor:
    """The same sum with one pair per centre: i is the mean of the context's input vectors, c the centre."""
    words = in_BTD.shape[1]
    many_BT1 = (left_BT + right_BT).unsqueeze(-1)
    weights_BTT = contexts(left_BT, right_BT) / many_BT1.clamp_min(1)
    mean_BTD = torch.bmm(weights_BTT.to(in_BTD.dtype), in_BTD)
    true_BT = F.softplus(-(mean_BTD * out_BUD[:, :words]).float().sum(-1))
    noise_BT = F.softplus(torch.bmm(mean_BTD, out_BUD[:, words:].transpose(1, 2)).float()).mean(-1)
    return ((true_BT + negatives * noise_BT) * (many_BT1.squeeze(-1) > 0)).sum()
