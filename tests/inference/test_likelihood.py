"""Log-likelihoods against the chain rule for exact models, and consistency of the functions for several families."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from components.core.errors import ConfigError, DataError
from components.models.base import Carry, LanguageModel, ModelConfig
from components.models.encoder import build_model
from components.serving.likelihood import (
    Gap,
    causal_log_probs,
    gap_between,
    masked_log_probs,
    pseudo_log_probs,
    text_log_probs,
)
from components.tokenization.special import END, MASK

SIZES = {
    "gpt": {"width": 16, "layers": 2, "heads": 2, "positions": 8},
    "ulmfit": {"embedding": 8, "hidden": 8, "layers": 2},
    "transformer-xl": {"width": 16, "layers": 2, "heads": 2, "memory": 600},
    "flair": {"embedding": 6, "hidden": 8},
    "bert": {"width": 16, "layers": 2, "heads": 2, "positions": 10},
}
VOCABULARY = 11


def tiny(family: str) -> LanguageModel:
    torch.manual_seed(0)
    model = build_model(family, vocabulary=VOCABULARY, settings=SIZES[family]).eval()
    # With the small initial weights, the log-probabilities of different positions hardly differ.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


class Bigram(LanguageModel):
    """p(next piece | piece) from a table; at a [MASK], p(piece | the piece before it)."""

    def __init__(self, shares_VV: Tensor, *, room: int | None = None, masked: bool = False) -> None:
        super().__init__()
        self.config = ModelConfig(vocabulary=len(shares_VV))
        self.shares = torch.nn.Parameter(shares_VV.log())
        self.room, self.masked = room, masked

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        assert self.room is None or tokens.shape[1] <= self.room
        before = tokens.roll(1, 1) if self.masked else tokens
        return self.shares[before], ()

    def special_tokens(self, pieces: list[int]) -> list[int]:
        return [END, *pieces, END]

    @property
    def max_tokens(self) -> int | None:
        return self.room

    losses = hidden_states = summary = layer_groups = remap_vocabulary = None


@pytest.fixture
def table() -> Tensor:
    return torch.rand(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(
        1
    )


def test_causal_log_probs_follow_the_chain_rule(table):
    model = Bigram(table)
    inputs = [Gap([END, 6, 7, 8], [1, 2, 3]), Gap([END, 9, 9], [2]), Gap([END, 5, 6, 7], [3])]
    actual = causal_log_probs(model, inputs)
    expected = [[table[END, 6], table[6, 7], table[7, 8]], [table[9, 9]], [table[6, 7]]]
    for values, probabilities in zip(actual, expected, strict=True):
        assert values == pytest.approx([math.log(value) for value in probabilities], abs=1e-6)


def test_gaps_are_masked_together(table):
    model = Bigram(table, masked=True)
    actual = masked_log_probs(model, [Gap([END, 6, 7, 8, END], [2, 3]), Gap([END, 6, 7, 8, END], [1])])
    # The piece before the second scored one is masked, too.
    assert actual[0] == pytest.approx([math.log(table[6, 7]), math.log(table[MASK, 8])], abs=1e-6)
    assert actual[1] == pytest.approx([math.log(table[END, 6])], abs=1e-6)


@pytest.mark.parametrize("room", [None, 100, 6, 5, 2])
def test_text_log_probs_cover_every_piece_once(table, room):
    pieces = np.random.default_rng(0).integers(5, VOCABULARY, 30).tolist()
    actual = text_log_probs(Bigram(table, room=room), pieces)
    before = [END, *pieces]
    expected = [math.log(table[first, second]) for first, second in zip(before[:-1], pieces, strict=True)]
    assert actual == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("family", ["gpt", "ulmfit", "transformer-xl", "flair"])
def test_text_log_probs_equal_a_single_pass(family):
    model = tiny(family)
    pieces = np.random.default_rng(1).integers(5, VOCABULARY, 7 if family == "gpt" else 300).tolist()
    (whole,) = causal_log_probs(model, [Gap([END, *pieces], range(1, len(pieces) + 1))])
    np.testing.assert_allclose(text_log_probs(model, pieces), whole, atol=1e-4)
    assert whole.std() > 0.01


def test_the_pseudo_likelihood_masks_one_piece_at_a_time(table):
    model = Bigram(table, masked=True)
    assert pseudo_log_probs(model, [6, 7, 8]) == pytest.approx(
        [math.log(table[END, 6]), math.log(table[6, 7]), math.log(table[7, 8])], abs=1e-6
    )
    # Two pieces fit between the ENDs, so the third one begins a new segment.
    assert pseudo_log_probs(Bigram(table, room=4, masked=True), [6, 7, 8]) == pytest.approx(
        [math.log(table[END, 6]), math.log(table[6, 7]), math.log(table[END, 8])], abs=1e-6
    )


def test_an_answer_between_two_texts(table):
    options, small = Bigram(table), Bigram(table, room=7)
    assert gap_between(options, [5, 6], [7], [8], causal=False) == Gap([END, 5, 6, 7, 8, END], range(3, 4))
    # The pieces after the answer are scored, too.
    assert gap_between(options, [5, 6], [7], [8], causal=True) == Gap([END, 5, 6, 7, 8, END], range(3, 5))
    # 5 pieces fit.
    assert gap_between(small, [5, 6, 9, 10], [7, 7], [8], causal=False).pieces == [END, 9, 10, 7, 7, 8, END]
    assert gap_between(small, [5, 6], [7, 7], [8, 8, 9, 9], causal=False).pieces == [END, 7, 7, 8, 8, 9, END]


def test_answers_that_do_not_fit(table):
    with pytest.raises(DataError, match="an answer of 6 pieces exceeds the model's positions; shorten it"):
        gap_between(Bigram(table, room=7), [5], [6] * 6, [], causal=True)
    with pytest.raises(DataError, match="the answer has no piece of the vocabulary"):
        gap_between(Bigram(table), [5], [], [], causal=True)


def test_models_without_a_language_model():
    model = build_model("word2vec", vocabulary=VOCABULARY, settings={"width": 4})
    with pytest.raises(ConfigError, match="predicts no pieces"):
        causal_log_probs(model, [Gap([END, 5], [1])])
