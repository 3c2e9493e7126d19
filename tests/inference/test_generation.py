"""Sampling on exact distributions; continuations, gaps and sums of words with models of known predictions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from components.core.errors import ConfigError, DataError
from components.data.segmenters import Segmentation
from components.models.base import Carry, LanguageModel
from components.models.bidirectional import BidirectionalModel
from components.models.encoder import build_model
from components.models.static import StaticVectors
from components.serving.generation import (
    Sampling,
    continue_text,
    fill_between,
    fill_gaps,
    generate,
    nearest_to,
    nearest_words,
    probabilities,
)
from components.tokenization import Tokenizer
from components.tokenization.char import CharTokenizer
from components.tokenization.special import END, FIRST_ORDINARY, MASK, SPECIAL_PIECES
from components.tokenization.word import WordTokenizer

LOGITS = torch.tensor([0.5, 0.1, 0.25, 0.15]).log()
WORDS = ["king", "queen", "man", "woman", "apple"]


def word_tokenizer(*words: str) -> WordTokenizer:
    return WordTokenizer(
        [*SPECIAL_PIECES, *words], segmentation=Segmentation("none"), lowercase=True, strip_accents=True
    )


class Counting(LanguageModel):
    """Predicts n + 1 after piece n, and END after the last piece. The carry is the number of pieces read."""

    def __init__(self, vocabulary: int, *, room: int | None = None) -> None:
        super().__init__()
        self.vocabulary, self.room = vocabulary, room
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.read: list[list[int]] = []

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        self.read.append(tokens[0].tolist())
        following = torch.where(tokens + 1 < self.vocabulary, tokens + 1, END)
        following = torch.where(tokens == END, FIRST_ORDINARY, following)
        logits = torch.nn.functional.one_hot(following, self.vocabulary) * 50.0
        # Without their exclusion, special pieces would be the most probable.
        logits[..., [0, 1, 2, MASK]] = 100.0
        return logits, (torch.tensor([[float(tokens.shape[1])]]) + (carry[0] if carry else 0),)

    def special_tokens(self, pieces: list[int]) -> list[int]:
        return [END, *pieces, END]

    @property
    def max_tokens(self) -> int | None:
        return self.room

    losses = hidden_states = summary = layer_groups = remap_vocabulary = None


Counting.__abstractmethods__ = frozenset()


EQUAL, ONLY = torch.zeros(4), torch.tensor([-math.inf, 0.0, -math.inf])


@pytest.mark.parametrize(
    ("logits", "sampling", "expected"),
    [
        (LOGITS, Sampling(), [0.5, 0.1, 0.25, 0.15]),
        (LOGITS, Sampling(temperature=0), [1, 0, 0, 0]),
        (LOGITS, Sampling(temperature=0.5), [0.25 / 0.345, 0.01 / 0.345, 0.0625 / 0.345, 0.0225 / 0.345]),
        (LOGITS, Sampling(top_k=2), [2 / 3, 0, 1 / 3, 0]),
        (LOGITS, Sampling(top_k=9), [0.5, 0.1, 0.25, 0.15]),
        (LOGITS, Sampling(top_p=0.5), [1, 0, 0, 0]),
        (LOGITS, Sampling(top_p=0.51), [2 / 3, 0, 1 / 3, 0]),
        (LOGITS, Sampling(top_p=1e-9), [1, 0, 0, 0]),
        # After top-k, the first of the two pieces has probability 2/3.
        (LOGITS, Sampling(top_k=2, top_p=0.6), [1, 0, 0, 0]),
        # Equal logits are ordered by id.
        (EQUAL, Sampling(top_k=1), [1, 0, 0, 0]),
        (EQUAL, Sampling(temperature=0), [1, 0, 0, 0]),
        (EQUAL, Sampling(top_p=0.5), [0.5, 0.5, 0, 0]),
        *(
            (ONLY, sampling, [0, 1, 0])
            for sampling in (Sampling(top_k=3), Sampling(top_p=0.9), Sampling(temperature=0))
        ),
    ],
)
def test_probabilities(logits, sampling, expected):
    assert probabilities(logits, sampling).tolist() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"temperature": math.nan}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}]
)
def test_sampling_settings_out_of_range(wrong):
    with pytest.raises(ConfigError, match=f"sampling: {next(iter(wrong)).replace('_', '-')}"):
        Sampling(**wrong)


def test_generation_is_a_function_of_the_seed():
    class Uniform(Counting):
        def predict(self, tokens, carry=()):
            return torch.zeros(1, tokens.shape[1], self.vocabulary), ()

    model = Uniform(1000)
    once = generate(model, [5], length=20, sampling=Sampling(), seed=3)
    assert once == generate(model, [5], length=20, sampling=Sampling(), seed=3)
    assert once != generate(model, [5], length=20, sampling=Sampling(), seed=4)
    assert min(once) >= FIRST_ORDINARY


def test_beyond_the_positions_a_new_window_begins():
    model = Counting(99, room=6)
    assert generate(model, [5, 6, 7], length=6, sampling=Sampling()) == [8, 9, 10, 11, 12, 13]
    assert model.read == [[5, 6, 7], [8], [9], [10], [9, 10, 11], [12]]
    long = Counting(99, room=6)
    assert generate(long, [5, 6, 7, 8, 9, 10, 11], length=2, sampling=Sampling()) == [12, 13]
    assert long.read == [[9, 10, 11], [12]]


def test_special_pieces_after_the_text_are_not_part_of_the_prompt():
    model, tokenizer = Counting(10), word_tokenizer(*WORDS)
    assert continue_text(model, tokenizer, "King QUEEN", length=2, sampling=Sampling()) == "king queen man woman"
    assert model.read[0] == [END, 5, 6]
    assert continue_text(model, tokenizer, "", length=1, sampling=Sampling()) == "king"


def test_unknown_words_and_characters():
    words = word_tokenizer(*WORDS)
    with pytest.raises(DataError, match="not in the vocabulary: 'kings'; did you mean 'king'?"):
        continue_text(Counting(10), words, "the kings".replace("the ", ""), length=2, sampling=Sampling())
    with pytest.raises(DataError, match="not in the vocabulary: 'a', 'cat'"):
        continue_text(Counting(10), words, "a cat, man, a".replace(",", ""), length=2, sampling=Sampling())
    alphabet = CharTokenizer([*SPECIAL_PIECES, "a", "b"], segmentation=Segmentation("none"))
    with pytest.raises(DataError, match="not in the alphabet: 'ก', '!'"):
        continue_text(Counting(7), alphabet, "abก!ก", length=2, sampling=Sampling())


class Gaps(Counting):
    """The most probable piece at position t is FIRST_ORDINARY + t."""

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        self.read.append(tokens[0].tolist())
        logits = torch.zeros(1, tokens.shape[1], self.vocabulary)
        for position in range(tokens.shape[1]):
            logits[0, position, FIRST_ORDINARY + position] = math.log(3)
        logits[..., :FIRST_ORDINARY] = 100
        return logits, ()


def test_candidates_are_those_of_the_position_of_the_gap():
    model, tokenizer = Gaps(10), word_tokenizer(*WORDS)
    first, second = fill_gaps(model, tokenizer, "[MASK] man [MASK]", count=2)
    assert model.read == [[END, MASK, 7, MASK, END]]
    assert first[0] == ("queen", pytest.approx(3 / 7))
    assert second[0] == ("woman", pytest.approx(3 / 7))
    assert first[1][1] == pytest.approx(1 / 7)


def test_texts_without_a_gap_or_too_long():
    with pytest.raises(DataError, match=r"'king': has no gap; write \[MASK\] in place of a word"):
        fill_gaps(Gaps(10), word_tokenizer(*WORDS), "king")
    with pytest.raises(ConfigError, match=r"5 pieces exceed the model's 4 positions"):
        fill_gaps(Gaps(10, room=4), word_tokenizer(*WORDS), "king [MASK] man")


class BothSides(BidirectionalModel):
    """Predicts the words queen, man and woman with p(. | left) and p(. | right), and special pieces with more."""

    ahead = torch.tensor([0.1, 0.6, 0.3])
    back = torch.tensor([0.5, 0.1, 0.4])

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.read: list[list[int]] = []

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        return self._at(tokens, self.ahead, -1), ()

    def predict_backward(self, tokens: Tensor) -> Tensor:
        return self._at(tokens, self.back, 0)

    def _at(self, tokens: Tensor, probabilities_W: Tensor, position: int) -> Tensor:
        self.read.append(tokens[0].tolist())
        logits = torch.zeros(1, tokens.shape[1], 10)
        logits[0, position] = torch.cat([torch.full((6,), -50.0), probabilities_W.log(), torch.tensor([-50.0])])
        logits[0, position, MASK] = 20.0
        return logits

    losses = hidden_states = layer_groups = None


def counted_tokenizer() -> WordTokenizer:
    """Frequencies that are 2, 1 and 8 with add-one smoothing, of queen, man and woman."""
    tokenizer = word_tokenizer(*WORDS)
    tokenizer.frequencies = np.array([0, 0, 0, 0, 0, 0, 1, 0, 7, 0])
    return tokenizer


def test_a_gap_is_filled_from_both_sides():
    """p(w | left) p(w | right) / p(w): queen 0.05 / 2, man 0.06 / 1, woman 0.12 / 8, normalised."""
    for text in ("king ___ apple king", "king [MASK] apple king"):
        model = BothSides()
        best = fill_between(model, counted_tokenizer(), text, count=3)
        assert model.read == [[END, 5], [9, 5, END]]
        assert [word for word, _ in best] == ["man", "queen", "woman"]
        assert [value for _, value in best] == pytest.approx([0.6, 0.25, 0.15])


def test_a_gap_at_an_end_is_between_the_special_pieces():
    model = BothSides()
    fill_between(model, counted_tokenizer(), "___")
    assert model.read == [[END], [END]]
    with pytest.raises(DataError, match="has 2 gaps; write one"):
        fill_between(model, counted_tokenizer(), "___ king ___")


@pytest.fixture
def vectors() -> tuple[StaticVectors, Tokenizer]:
    model = build_model("word2vec", vocabulary=10, settings={"width": 3})
    assert isinstance(model, StaticVectors)
    table = torch.tensor([[1.0, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1], [-1, 0, 0]])
    model.load_state_dict({"input": torch.cat([torch.zeros(5, 3), table]), "output": torch.zeros(10, 3)})
    tokenizer = word_tokenizer(*WORDS)
    model.bind(tokenizer)
    return model, tokenizer


def test_3cosadd_against_its_definition():
    """Mikolov, Yih and Zweig 2013: the words x with the greatest cos(x, b) - cos(x, a) + cos(x, c)."""
    words = [f"w{number}" for number in range(50)]
    table = torch.randn(55, 6, generator=torch.Generator().manual_seed(0))
    model, tokenizer = build_model("word2vec", vocabulary=55, settings={"width": 6}), word_tokenizer(*words)
    assert isinstance(model, StaticVectors)
    model.load_state_dict({"input": table, "output": torch.zeros(55, 6)})
    model.bind(tokenizer)
    unit = torch.nn.functional.normalize(table[FIRST_ORDINARY:], dim=1)
    scores = unit @ unit[7] - unit @ unit[3] + unit @ unit[11]
    expected = [words[index] for index in scores.argsort(descending=True).tolist() if index not in (3, 7, 11)]
    assert [word for word, _ in nearest_to(model, tokenizer, "w7 - w3 + w11", count=47)] == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("king queen", "expected words with . or - between them, such as king - man . woman"),
        ("- king", "expected words with"),
        ("king -", "expected a word after the last sign"),
        ("", "expected a word"),
        ("kings", "'kings' is not in the vocabulary; did you mean 'king'"),
    ],
)
def test_malformed_expressions(vectors, expression, message):
    with pytest.raises(DataError, match=message):
        nearest_to(*vectors, expression)


#: First axis: royal; second axis: male and female. The lengths differ, since only directions matter.
GRID = {
    "king": (1.0, 1.0, 0),
    "queen": (2.0, -2.0, 0),
    "man": (0.0, 3.0, 0.1),
    "woman": (0.0, -1.0, 0.1),
    "tree": (0, 0, 5.0),
}
PIECES = list(GRID)
TABLE = torch.tensor(list(GRID.values()))


def test_neighbours_by_cosine():
    actual = nearest_words(TABLE, PIECES, torch.tensor([0.0, 10.0, 0.0]), count=3)
    assert [piece for piece, _ in actual] == ["man", "king", "tree"]
    assert [cosine for _, cosine in actual] == pytest.approx([0.99944, 2**-0.5, 0], abs=1e-4)
    without = nearest_words(TABLE, PIECES, TABLE[0], count=10, without=["king", "other"])
    assert without[0][0] == "man" and len(without) == 4


def test_a_zero_query_and_pieces_of_another_table():
    with pytest.raises(DataError, match="the query is a zero vector"):
        nearest_words(TABLE, PIECES, torch.zeros(3))
    with pytest.raises(DataError, match="5 vectors for 4 pieces; use those of the same model"):
        nearest_words(TABLE, PIECES[:4], TABLE[0])


def test_every_piece_takes_one_step():
    model = Counting(12)
    assert generate(model, [END, 5, 6], length=4, sampling=Sampling()) == [7, 8, 9, 10]
    assert model.read == [[END, 5, 6], [7], [8], [9]]


def test_special_pieces_are_excluded():
    table = torch.cat([TABLE[:1].expand(5, -1), TABLE])
    actual = nearest_words(table, [*SPECIAL_PIECES, *PIECES], TABLE[0], count=20)
    assert actual[0][0] == "king" and len(actual) == 5
