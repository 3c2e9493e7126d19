"""CoVe: losses and states against the equations, a copy task, and the influence of padding."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from components.core.errors import DataError
from components.models.cove import CoVe
from components.models.encoder import build_model
from components.serving.generation import Sampling, translate_text, try_model
from components.tokenization.special import END, FIRST_ORDINARY, START
from components.training.pretraining.translation import TranslationSampler
from tests.encoders import stored
from tests.models.conftest import letters
from tests.tokenizers import make_tokenizer
from tests.training.helpers import PAIRS, PairStore

VOCABULARY = 20


@pytest.fixture
def model() -> CoVe:
    torch.manual_seed(1)
    model = build_model("cove", vocabulary=VOCABULARY, settings={"embedding": 5, "hidden": 6})
    return model.eval()


def test_a_text_is_translated(model, tmp_path, monkeypatch):
    """By a model that repeats the source."""
    monkeypatch.setattr(CoVe, "translate", lambda self, tokens, lengths, most: tokens[:, :most])
    tokenizer = make_tokenizer("word", letters(VOCABULARY - FIRST_ORDINARY))
    assert translate_text(model, tokenizer, "D e B", length=10) == "d e b"
    assert translate_text(model, tokenizer, "d e b", length=2) == "d e"
    with pytest.raises(DataError, match="the text is empty: nothing to translate"):
        translate_text(model, tokenizer, " ", length=2)
    encoder = stored(tmp_path / "encoder", "cove", model, tokenizer)
    actual = try_model(encoder, "d e b", length=10, count=3, sampling=Sampling(), seed=0)
    assert actual == (["translation"], [("d e b",)])


def lstm(x: Tensor, h: Tensor, c: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """One LSTM step: gates i, f, g, o of [x; h]."""
    i, f, g, o = (weight @ torch.cat([x, h]) + bias).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def encoded(model: CoVe, source: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    """States (T, 2 hidden) of every layer, and its last states, computed position by position."""
    x = model.embedding[torch.tensor(source)]
    layers, lasts = [], []
    for layer in model.layers:
        halves, ends = [], []
        for direction, reads in ((layer.ahead, list(x)), (layer.back, list(x)[::-1])):
            h = c = torch.zeros(6)
            states = []
            for vector in reads:
                h, c = lstm(vector, h, c, torch.cat([direction.weight_ih, direction.weight_hh], 1), direction.bias)
                states.append(h)
            halves.append(states if direction is layer.ahead else states[::-1])
            ends.append(h)
        x = torch.stack([torch.cat(pair) for pair in zip(*halves, strict=True)])
        layers.append(x)
        lasts.append(torch.cat(ends))
    return layers, lasts


def log_likelihood(model: CoVe, source: list[int], target: list[int]) -> float:
    """log p(target | source) per word, by the equations of section 3."""
    layers, lasts = encoded(model, source)
    memory, decoder = layers[-1], model.decoder
    states = [(last, torch.zeros(12)) for last in lasts]
    mixed, before, total = torch.zeros(12), START, 0.0
    for word in target:
        x = torch.cat([decoder.embedding[before], mixed])
        for index, linear in enumerate(decoder.cells):
            assert isinstance(linear, nn.Linear)
            weight, bias = (
                (linear.weight, linear.bias)
                if index
                else (torch.cat([decoder.word.weight, linear.weight], 1), decoder.word.bias)
            )
            states[index] = lstm(x, *states[index], weight, bias)
            x = states[index][0]
        alpha = torch.softmax(memory @ (decoder.query.weight @ x + decoder.query.bias), 0)
        mixed = torch.tanh(decoder.mix.weight @ torch.cat([alpha @ memory, x]) + decoder.mix.bias)
        total += float(torch.log_softmax(model.output @ mixed + model.bias, 0)[word])
        before = word
    return total


@torch.no_grad()
def test_the_loss_equals_the_likelihood_of_stepwise_decoding(model):
    model.set_output_bias(torch.randn(VOCABULARY))
    nn.init.normal_(model.output)
    batch = TranslationSampler(PairStore(PAIRS), batch_size=4, window=9, seed=0, vocabulary=VOCABULARY).batch(0)
    losses = model.losses(batch)
    total, count = losses.sums["tokens"]
    expected = -sum(log_likelihood(model, [*source, END], [*target, END]) for source, target in PAIRS)
    assert int(count) == sum(len(target) + 1 for _, target in PAIRS) == 13
    assert float(total) == pytest.approx(expected, abs=1e-4)
    assert float(losses.loss) == pytest.approx(expected / 13, abs=1e-5)


@torch.no_grad()
def test_hidden_states_are_word_vectors_and_encoder_states(model):
    tokens, lengths = torch.tensor([[7, 8, 9, END], [5, END, 0, 0]]), torch.tensor([4, 2])
    words, *layers = model.hidden_states(tokens, lengths)
    assert [states.shape for states in (words, *layers)] == [(2, 4, 5), (2, 4, 17), (2, 4, 17)]
    for row, length in enumerate(lengths.tolist()):
        text = tokens[row, :length]
        torch.testing.assert_close(words[row, :length], model.embedding[text])
        for states, expected in zip(layers, encoded(model, text.tolist())[0], strict=True):
            torch.testing.assert_close(states[row, :length], torch.cat([model.embedding[text], expected], -1))


@torch.no_grad()
def test_a_greedy_translation_takes_the_most_likely_next_word(model):
    nn.init.normal_(model.output)
    tokens, lengths = torch.tensor([[7, 8, 9, END], [5, END, 0, 0]]), torch.tensor([4, 2])
    actual = model.translate(tokens, lengths, most=6)
    for row, length in enumerate(lengths.tolist()):
        source, words = tokens[row, :length].tolist(), actual[row].tolist()
        translation: list[int] = []
        for word in words:
            scores = [log_likelihood(model, source, [*translation, other]) for other in range(VOCABULARY)]
            assert word == int(np.argmax(scores))
            translation.append(word)
            if word == END:
                break
        assert words[len(translation) :] == [END] * (len(words) - len(translation))


def test_fixed_word_vectors_are_not_trained_by_translation_but_by_tasks():
    torch.manual_seed(0)
    model = build_model("cove", vocabulary=VOCABULARY, settings={"embedding": 5, "hidden": 6, "fixed_words": True})
    sampler = TranslationSampler(PairStore(PAIRS), batch_size=4, window=9, seed=0, vocabulary=VOCABULARY)
    model.losses(sampler.batch(0)).loss.backward()
    missing = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert missing == {"embedding"}
    tokens = torch.tensor([[6, 7, END]])
    model.hidden_states(tokens, torch.tensor([3]))[-1].sum().backward()
    assert model.embedding.grad is not None and model.embedding.grad[[6, 7]].any(1).all()
