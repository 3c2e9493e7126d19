"""Sampling, continuations, gaps, neighbours, likelihoods: models of known predictions, and several families."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from components.core.errors import ConfigError, DataError
from components.models.base import Carry, LanguageModel, ModelConfig
from components.models.bidirectional import BidirectionalModel
from components.models.encoder import Encoder, build_model
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
from components.serving.likelihood import (
    Gap,
    causal_log_probs,
    gap_between,
    masked_log_probs,
    measure_file,
    measure_texts,
    pseudo_log_probs,
    text_log_probs,
)
from components.tokenization.special import END, FIRST_ORDINARY, MASK, SPECIAL_PIECES
from components.tokenization.word import WordTokenizer
from tests.encoders import stored
from tests.tokenizers import make_tokenizer

WORDS = ["king", "queen", "man", "woman", "apple"]
ONE = Sampling()


def word_tokenizer(*words: str) -> WordTokenizer:
    return make_tokenizer("word", words)


class Known(LanguageModel):
    """A model of known predictions, which notes what it reads."""

    def __init__(self, vocabulary: int, *, room: int | None = None) -> None:
        super().__init__()
        self.config, self.vocabulary, self.room = ModelConfig(vocabulary=vocabulary), vocabulary, room
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.read: list[list[int]] = []

    def special_tokens(self, pieces: list[int]) -> list[int]:
        return [END, *pieces, END]

    @property
    def max_tokens(self) -> int | None:
        return self.room

    losses = hidden_states = summary = layer_groups = remap_vocabulary = None


Known.__abstractmethods__ = frozenset()


class Counting(Known):
    """Predicts n + 1 after piece n, and END after the last piece. The carry is the number of pieces read."""

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        self.read.append(tokens[0].tolist())
        following = torch.where(tokens + 1 < self.vocabulary, tokens + 1, END)
        following = torch.where(tokens == END, FIRST_ORDINARY, following)
        logits = torch.nn.functional.one_hot(following, self.vocabulary) * 50.0
        # Without their exclusion, special pieces would be the most probable.
        logits[..., [0, 1, 2, MASK]] = 100.0
        return logits, (torch.tensor([[float(tokens.shape[1])]]) + (carry[0] if carry else 0),)


class Gaps(Known):
    """The most probable piece at position t is FIRST_ORDINARY + t."""

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        self.read.append(tokens[0].tolist())
        logits = torch.zeros(1, tokens.shape[1], self.vocabulary)
        for position in range(tokens.shape[1]):
            logits[0, position, FIRST_ORDINARY + position] = math.log(3)
        logits[..., :FIRST_ORDINARY] = 100
        return logits, ()


class Bigram(Known):
    """p(next piece | piece) from a table; at a [MASK], p(piece | the piece before it)."""

    def __init__(self, shares_VV: Tensor, *, room: int | None = None, masked: bool = False) -> None:
        super().__init__(len(shares_VV), room=room)
        self.shares, self.masked = torch.nn.Parameter(shares_VV.log()), masked

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        assert self.room is None or tokens.shape[1] <= self.room
        return self.shares[tokens.roll(1, 1) if self.masked else tokens], ()


LOGITS = torch.tensor([0.5, 0.1, 0.25, 0.15]).log()
EQUAL, ONLY = torch.zeros(4), torch.tensor([-math.inf, 0.0, -math.inf])


@pytest.mark.parametrize(
    ("logits", "sampling", "expected"),
    [
        (LOGITS, {}, [0.5, 0.1, 0.25, 0.15]),
        (LOGITS, {"temperature": 0}, [1, 0, 0, 0]),
        (LOGITS, {"temperature": 0.5}, [0.25 / 0.345, 0.01 / 0.345, 0.0625 / 0.345, 0.0225 / 0.345]),
        (LOGITS, {"top_k": 2}, [2 / 3, 0, 1 / 3, 0]),
        (LOGITS, {"top_k": 9}, [0.5, 0.1, 0.25, 0.15]),
        (LOGITS, {"top_p": 0.5}, [1, 0, 0, 0]),
        (LOGITS, {"top_p": 0.51}, [2 / 3, 0, 1 / 3, 0]),
        (LOGITS, {"top_p": 1e-9}, [1, 0, 0, 0]),
        # After top-k, the first of the two pieces has probability 2/3.
        (LOGITS, {"top_k": 2, "top_p": 0.6}, [1, 0, 0, 0]),
        # Equal logits are ordered by id.
        (EQUAL, {"top_k": 1}, [1, 0, 0, 0]),
        (EQUAL, {"temperature": 0}, [1, 0, 0, 0]),
        (EQUAL, {"top_p": 0.5}, [0.5, 0.5, 0, 0]),
        *((ONLY, sampling, [0, 1, 0]) for sampling in ({"top_k": 3}, {"top_p": 0.9}, {"temperature": 0})),
    ],
)
def test_probabilities(logits, sampling, expected):
    assert probabilities(logits, Sampling(**sampling)).tolist() == pytest.approx(expected, abs=1e-7)


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

    once, again, other = (generate(Uniform(1000), [5], length=20, sampling=ONE, seed=seed) for seed in (3, 3, 4))
    assert once == again != other and min(once) >= FIRST_ORDINARY


@pytest.mark.parametrize(
    ("room", "prompt", "generated", "read"),
    [
        (None, [END, 5, 6], [7, 8, 9, 10], [[END, 5, 6], [7], [8], [9]]),
        # Beyond the positions, a new window begins.
        (6, [5, 6, 7], [8, 9, 10, 11, 12, 13], [[5, 6, 7], [8], [9], [10], [9, 10, 11], [12]]),
        (6, [5, 6, 7, 8, 9, 10, 11], [12, 13], [[9, 10, 11], [12]]),
    ],
)
def test_every_piece_takes_one_step(room, prompt, generated, read):
    model = Counting(99, room=room)
    assert generate(model, prompt, length=len(generated), sampling=ONE) == generated
    assert model.read == read


def test_special_pieces_after_the_text_are_not_part_of_the_prompt():
    model, tokenizer = Counting(10), word_tokenizer(*WORDS)
    assert continue_text(model, tokenizer, "King QUEEN", length=2, sampling=ONE) == "king queen man woman"
    assert model.read[0] == [END, 5, 6]
    assert continue_text(model, tokenizer, "", length=1, sampling=ONE) == "king"


@pytest.mark.parametrize(
    ("tokenizer", "text", "message"),
    [
        (word_tokenizer(*WORDS), "kings", "not in the vocabulary: 'kings'; did you mean 'king'?"),
        (word_tokenizer(*WORDS), "a cat man a", "not in the vocabulary: 'a', 'cat'"),
        (make_tokenizer("char", "ab"), "abก!ก", "not in the alphabet: 'ก', '!'"),
    ],
)
def test_unknown_words_and_characters(tokenizer, text, message):
    with pytest.raises(DataError, match=message):
        continue_text(Counting(10), tokenizer, text, length=2, sampling=ONE)


def test_candidates_are_those_of_the_position_of_the_gap():
    model, tokenizer = Gaps(10), word_tokenizer(*WORDS)
    first, second = fill_gaps(model, tokenizer, "[MASK] man [MASK]", count=2)
    assert model.read == [[END, MASK, 7, MASK, END]]
    assert first == [("queen", pytest.approx(3 / 7)), (first[1][0], pytest.approx(1 / 7))]
    assert second[0] == ("woman", pytest.approx(3 / 7))
    with pytest.raises(DataError, match=r"'king': has no gap; write \[MASK\] in place of a word"):
        fill_gaps(model, tokenizer, "king")
    with pytest.raises(ConfigError, match=r"5 pieces exceed the model's 4 positions"):
        fill_gaps(Gaps(10, room=4), tokenizer, "king [MASK] man")


class BothSides(BidirectionalModel):
    """Predicts the words queen, man and woman with p(. | left) and p(. | right), and special pieces with more."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.read: list[list[int]] = []

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        return self._at(tokens, torch.tensor([0.1, 0.6, 0.3]), -1), ()

    def predict_backward(self, tokens: Tensor) -> Tensor:
        return self._at(tokens, torch.tensor([0.5, 0.1, 0.4]), 0)

    def _at(self, tokens: Tensor, probabilities_W: Tensor, position: int) -> Tensor:
        self.read.append(tokens[0].tolist())
        logits = torch.zeros(1, tokens.shape[1], 10)
        logits[0, position] = torch.cat([torch.full((6,), -50.0), probabilities_W.log(), torch.tensor([-50.0])])
        logits[0, position, MASK] = 20.0
        return logits

    losses = hidden_states = layer_groups = None


def test_a_gap_is_filled_from_both_sides():
    """p(w | left) p(w | right) / p(w): queen 0.05 / 2, man 0.06 / 1, woman 0.12 / 8, normalised."""
    tokenizer = word_tokenizer(*WORDS)
    # With add-one smoothing 2, 1 and 8 of queen, man and woman.
    tokenizer.frequencies = np.array([0, 0, 0, 0, 0, 0, 1, 0, 7, 0])
    sides = {"king ___ apple king": [[END, 5], [9, 5, END]], "king [MASK] apple king": [[END, 5], [9, 5, END]]}
    for text, read in (sides | {"___": [[END], [END]]}).items():
        model = BothSides()
        best = fill_between(model, tokenizer, text, count=3)
        assert model.read == read
        assert best == [(word, pytest.approx(p)) for word, p in (("man", 0.6), ("queen", 0.25), ("woman", 0.15))]
    with pytest.raises(DataError, match="has 2 gaps; write one"):
        fill_between(BothSides(), tokenizer, "___ king ___")


def static_model(table: Tensor, words: list[str]) -> tuple[StaticVectors, WordTokenizer]:
    count, tokenizer = len(words) + FIRST_ORDINARY, word_tokenizer(*words)
    model = build_model("word2vec", vocabulary=count, settings={"width": table.shape[1]})
    above = torch.zeros(FIRST_ORDINARY, table.shape[1])
    model.load_state_dict({"input": torch.cat([above, table]), "output": torch.zeros(count, table.shape[1])})
    model.bind(tokenizer)
    return model, tokenizer


def test_3cosadd_against_its_definition():
    """Mikolov, Yih and Zweig 2013: the words x with the greatest cos(x, b) - cos(x, a) + cos(x, c)."""
    words = [f"w{number}" for number in range(50)]
    table = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    unit = torch.nn.functional.normalize(table, dim=1)
    scores = unit @ unit[7] - unit @ unit[3] + unit @ unit[11]
    expected = [words[index] for index in scores.argsort(descending=True).tolist() if index not in (3, 7, 11)]
    nearest = nearest_to(*static_model(table, words), "w7 - w3 + w11", count=47)
    assert [word for word, _ in nearest] == expected


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
def test_malformed_expressions(expression, message):
    with pytest.raises(DataError, match=message):
        nearest_to(*static_model(torch.eye(5), WORDS), expression)


#: First axis: royal; second axis: male and female. The lengths differ, since only directions matter.
PIECES = ["king", "queen", "man", "woman", "tree"]
TABLE = torch.tensor([[1.0, 1.0, 0], [2.0, -2.0, 0], [0.0, 3.0, 0.1], [0.0, -1.0, 0.1], [0, 0, 5.0]])


def test_neighbours_by_cosine():
    actual = nearest_words(TABLE, PIECES, torch.tensor([0.0, 10.0, 0.0]), count=3)
    expected = [("man", 0.99944), ("king", 2**-0.5), ("tree", 0)]
    assert actual == [(piece, pytest.approx(cosine, abs=1e-4)) for piece, cosine in expected]
    without = nearest_words(TABLE, PIECES, TABLE[0], count=10, without=["king", "other"])
    assert without[0][0] == "man" and len(without) == 4
    special = torch.cat([TABLE[:1].expand(len(SPECIAL_PIECES), -1), TABLE])
    ordinary = nearest_words(special, [*SPECIAL_PIECES, *PIECES], TABLE[0], count=20)
    assert ordinary[0][0] == "king" and len(ordinary) == 5
    with pytest.raises(DataError, match="the query is a zero vector"):
        nearest_words(TABLE, PIECES, torch.zeros(3))
    with pytest.raises(DataError, match="5 vectors for 4 pieces; use those of the same model"):
        nearest_words(TABLE, PIECES[:4], TABLE[0])


# Log-likelihoods against the chain rule for exact models, and consistency of the functions for several families.

VOCABULARY = 11
P = torch.rand(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(1)


def logs(*places: tuple[int, int]) -> Any:
    return pytest.approx([math.log(P[place]) for place in places], abs=1e-6)


def test_exact_likelihoods():
    causal, masked = Bigram(P), Bigram(P, masked=True)
    inputs = [Gap([END, 6, 7, 8], [1, 2, 3]), Gap([END, 9, 9], [2]), Gap([END, 5, 6, 7], [3])]
    expected = [logs((END, 6), (6, 7), (7, 8)), logs((9, 9)), logs((6, 7))]
    assert list(map(list, causal_log_probs(causal, inputs))) == expected
    # The piece before the second scored one is masked, too.
    gaps = [Gap([END, 6, 7, 8, END], [2, 3]), Gap([END, 6, 7, 8, END], [1])]
    assert list(map(list, masked_log_probs(masked, gaps))) == [logs((6, 7), (MASK, 8)), logs((END, 6))]
    # The pseudo-likelihood masks one piece at a time.
    assert pseudo_log_probs(masked, [6, 7, 8]) == logs((END, 6), (6, 7), (7, 8))
    # Two pieces fit between the ENDs, so the third one begins a new segment.
    assert pseudo_log_probs(Bigram(P, room=4, masked=True), [6, 7, 8]) == logs((END, 6), (6, 7), (END, 8))


@pytest.mark.parametrize("room", [None, 100, 6, 5, 2])
def test_text_log_probs_cover_every_piece_once(room):
    pieces = np.random.default_rng(0).integers(5, VOCABULARY, 30).tolist()
    assert text_log_probs(Bigram(P, room=room), pieces) == logs(*zip([END, *pieces[:-1]], pieces, strict=True))


SIZES = {
    "gpt": {"width": 16, "layers": 2, "heads": 2, "positions": 8},
    "ulmfit": {"embedding": 8, "hidden": 8, "layers": 2},
    "transformer-xl": {"width": 16, "layers": 2, "heads": 2, "memory": 600},
    "flair": {"embedding": 6, "hidden": 8},
    "bert": {"width": 16, "layers": 2, "heads": 2, "positions": 16},
}


@pytest.mark.parametrize("family", ["gpt", "ulmfit", "transformer-xl", "flair"])
def test_text_log_probs_equal_a_single_pass(family):
    torch.manual_seed(0)
    model = build_model(family, vocabulary=VOCABULARY, settings=SIZES[family]).eval()
    # With the small initial weights, the log-probabilities of different positions hardly differ.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    pieces = np.random.default_rng(1).integers(5, VOCABULARY, 7 if family == "gpt" else 300).tolist()
    (whole,) = causal_log_probs(model, [Gap([END, *pieces], range(1, len(pieces) + 1))])
    np.testing.assert_allclose(text_log_probs(model, pieces), whole, atol=1e-4)
    assert whole.std() > 0.01


def test_an_answer_between_two_texts():
    options, small = Bigram(P), Bigram(P, room=7)
    assert gap_between(options, [5, 6], [7], [8], causal=False) == Gap([END, 5, 6, 7, 8, END], range(3, 4))
    # The pieces after the answer are scored, too.
    assert gap_between(options, [5, 6], [7], [8], causal=True) == Gap([END, 5, 6, 7, 8, END], range(3, 5))
    # 5 pieces fit.
    assert gap_between(small, [5, 6, 9, 10], [7, 7], [8], causal=False).pieces == [END, 9, 10, 7, 7, 8, END]
    assert gap_between(small, [5, 6], [7, 7], [8, 8, 9, 9], causal=False).pieces == [END, 7, 7, 8, 8, 9, END]
    with pytest.raises(DataError, match="an answer of 6 pieces exceeds the model's positions; shorten it"):
        gap_between(small, [5], [6] * 6, [], causal=True)
    with pytest.raises(DataError, match="the answer has no piece of the vocabulary"):
        gap_between(options, [5], [], [], causal=True)
    vectors = build_model("word2vec", vocabulary=VOCABULARY, settings={"width": 4})
    with pytest.raises(ConfigError, match="predicts no pieces"):
        causal_log_probs(vectors, [Gap([END, 5], [1])])


# `headstart try --file`: per word and per character.

TEXTS = ["the old goat", "the new goat sings"]


def encoder_of(family: str) -> Encoder:
    torch.manual_seed(0)
    tokenizer = word_tokenizer("the", "old", "goat")
    model = build_model(family, vocabulary=tokenizer.vocab_size, settings=SIZES[family]).eval()
    model.bind(tokenizer)
    return Encoder(family, model, tokenizer)


def test_a_causal_model_predicts_every_piece_and_end():
    encoder = encoder_of("ulmfit")
    answer = measure_texts(encoder, TEXTS)
    assert (answer.documents, answer.words, answer.characters, answer.pieces, answer.unknown) == (2, 7, 30, 9, 2)
    assert answer.nats == pytest.approx(-text_log_probs(encoder.model, [5, 6, 7, END, 5, 1, 7, 1, END]).sum())
    assert answer.per_word == pytest.approx(math.exp(answer.nats / 7))
    assert answer.per_piece == pytest.approx(math.exp(answer.nats / 9))
    assert answer.bits_per_character == pytest.approx(answer.nats / 30 / math.log(2))
    # A masked model is measured by the pseudo-likelihood.
    encoder = encoder_of("bert")
    answer = measure_texts(encoder, TEXTS)
    expected = -sum(float(pseudo_log_probs(encoder.model, ids).sum()) for ids in ([5, 6, 7], [5, 1, 7, 1]))
    assert (answer.nats, answer.pieces) == (pytest.approx(expected), 7)


def test_files_of_several_formats(tmp_path: Path):
    encoder = encoder_of("ulmfit")
    directory = stored(tmp_path / "encoder", "ulmfit", encoder.model, encoder.tokenizer)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in [*TEXTS, " "]))
    assert measure_file(directory, tmp_path / "a.jsonl", text="body") == measure_texts(encoder, TEXTS)
    (tmp_path / "b.txt").write_text("the old goat\n")
    assert measure_file(directory, tmp_path / "b.txt").pieces == 4
    (tmp_path / "c.txt").write_text(" \n")
    with pytest.raises(DataError, match=r"c.txt: contains no text that the vocabulary covers"):
        measure_file(directory, tmp_path / "c.txt")
    with pytest.raises(DataError, match="d.txt"):
        measure_file(directory, tmp_path / "d.txt")
