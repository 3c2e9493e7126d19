"""word2vec: word vectors that predict the context (skip-gram), or are predicted from it (CBOW).

Mikolov, Chen, Corrado and Dean 2013a (Efficient Estimation of Word Representations in Vector Space); Mikolov,
Sutskever, Chen, Corrado and Dean 2013b (Distributed Representations of Words and Phrases and their Compositionality):

    skip-gram:  log s(O[c] . I[w]) + k E_{n ~ P} log s(-O[n] . I[w])          for every word c of the context of w
    CBOW:       the same with c = w, and the mean of I over the context instead of I[w]

s is the sigmoid, P(n) ~ count(n)^0.75. A word's vector is its row of I.

Shape suffixes: B batch rows, T words per row, S noise words per row, U = T + S, D width, V vocabulary.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import Batch, Carry, Losses, ModelFamily
from components.models.static import NegativeSamplingConfig, StaticVectors, cbow, skip_gram

#: Architecture -> the loss of a batch, summed over its pairs.
OBJECTIVES = {"skip_gram": skip_gram, "cbow": cbow}


class Word2VecConfig(NegativeSamplingConfig):
    """Settings of `NegativeSamplingConfig`; `skip_gram` predicts the context from the word, `cbow` the word from it."""

    architecture: Literal["skip_gram", "cbow"] = "skip_gram"


class Word2Vec(StaticVectors):
    """An input and an output table; `losses` reads the batches of `NegativeSampler` and has no carry. `sums["tokens"]`
    is the loss per pair (the true word and k noise words), not a likelihood."""

    config: Word2VecConfig
    piece_parameters = ("input", "output")

    def __init__(self, config: Word2VecConfig) -> None:
        super().__init__()
        self.config = config
        self.input = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.output = nn.Parameter(torch.zeros(config.vocabulary, config.width))
        # As the published code.
        nn.init.uniform_(self.input, -0.5 / config.width, 0.5 / config.width)

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        in_BTD = F.embedding(batch["tokens"], self.input)
        out_BUD = F.embedding(torch.cat([batch["tokens"], batch["noise"]], 1), self.output)
        objective = OBJECTIVES[self.config.architecture]
        total = objective(in_BTD, out_BUD, batch["left"], batch["right"], negatives=self.config.negatives)
        pairs = batch["pairs"].sum()
        return Losses(total / pairs.to(total.dtype), {"tokens": (total.detach(), pairs)})

    def embed(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.input)

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [[self.input]]


FAMILY = ModelFamily(
    name="word2vec",
    config=Word2VecConfig,
    build=Word2Vec,
    objective="static",
    sampler="negative_sampling",
    tokenizers=("word", "wordpiece"),
    tiny={"width": 32, "context": 2, "noise_words": 4},
    presets={
        # Mikolov et al. 2013b, section 3: width 300, a context of 5, t = 1e-5, five noise words.
        "skip-gram-300": {"width": 300, "subsample": 1e-5},
        "cbow-300": {"architecture": "cbow", "width": 300, "subsample": 1e-5},
    },
)
