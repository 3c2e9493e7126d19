"""word2vec: both architectures against loops over the formulas, and the vectors of a constructed text."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from components.core.errors import DataError
from components.models.encoder import build_model
from components.models.word2vec import Word2Vec
from components.tokenization.special import END, UNK
from tests.tokenizers import make_tokenizer

VOCABULARY, WIDTH, NEGATIVES = 12, 5, 3


def make(architecture: str) -> Word2Vec:
    settings = {"architecture": architecture, "width": WIDTH, "negatives": NEGATIVES}
    model = build_model("word2vec", vocabulary=VOCABULARY, settings=settings)
    torch.nn.init.normal_(model.input)
    torch.nn.init.normal_(model.output)
    return model.double()


def batch() -> dict[str, Tensor]:
    """Two rows; the second is shorter and contains two documents: 5 8 6 | 9 5."""
    return {
        "tokens": torch.tensor([[5, 6, 7, 5, 9, 6], [5, 8, 6, 9, 5, 0]]),
        "left": torch.tensor([[0, 1, 2, 1, 2, 1], [0, 1, 2, 0, 1, 0]]),
        "right": torch.tensor([[2, 1, 2, 1, 1, 0], [1, 1, 0, 1, 0, 0]]),
        "noise": torch.tensor([[5, 10, 6, 6], [7, 11, 9, 5]]),
        "pairs": torch.tensor([11, 10]),
    }


def targets(given: dict[str, Tensor], architecture: str) -> list[tuple[list[int], int, list[int]]]:
    """For each pair: the words whose mean is the input, the true word, the row's noise words."""
    actual = []
    rows = (given[key].tolist() for key in ("tokens", "left", "right", "noise"))
    for tokens, left, right, noise in zip(*rows, strict=True):
        for position, word in enumerate(tokens):
            around = (
                tokens[position - left[position] : position] + tokens[position + 1 : position + 1 + right[position]]
            )
            if architecture == "skip_gram":
                actual += [([word], context, noise) for context in around]
            elif around:
                actual.append((around, word, noise))
    return actual


@pytest.mark.parametrize("architecture", ["skip_gram", "cbow"])
def test_loss_and_gradients_are_those_of_the_paper(architecture):
    model, given = make(architecture), batch()
    pairs = len(targets(given, architecture))
    assert pairs == {"skip_gram": 21, "cbow": 11}[architecture]
    given["pairs"] = torch.tensor([pairs, 0])
    rows, columns = model.input.detach().numpy(), model.output.detach().numpy()
    expected, d_rows, d_columns = 0.0, np.zeros_like(rows), np.zeros_like(columns)
    for inputs, right, noise in targets(given, architecture):
        hidden, d_hidden = rows[inputs].mean(0), np.zeros(WIDTH)
        for word, label, weight in [(right, 1, 1.0), *((word, 0, NEGATIVES / len(noise)) for word in noise)]:
            chance = 1 / (1 + math.exp(-hidden @ columns[word]))
            expected -= weight * math.log(chance if label else 1 - chance)
            d_columns[word] += weight * (chance - label) * hidden
            d_hidden += weight * (chance - label) * columns[word]
        for word in inputs:
            d_rows[word] += d_hidden / len(inputs)
    result = model.losses(given)
    result.loss.backward()
    total, count = result.sums["tokens"]
    assert int(count) == pairs
    assert float(total) == pytest.approx(expected, rel=1e-6)
    assert float(result.loss.detach()) == pytest.approx(expected / pairs, rel=1e-6)
    np.testing.assert_allclose(model.input.grad.numpy() * pairs, d_rows, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model.output.grad.numpy() * pairs, d_columns, rtol=1e-5, atol=1e-7)


def test_the_vector_of_a_word():
    model = build_model("word2vec", vocabulary=8, settings={"width": 3})
    model.bind(make_tokenizer("word", ["river", "bridge", "boat"]))
    assert torch.equal(model.vector("bridge"), model.input[6])
    assert torch.equal(model.vectors(), model.input)
    with pytest.raises(DataError, match=r"^'brigde' is not in the vocabulary; did you mean 'bridge'\?$"):
        model.vector("brigde")


def test_a_text_is_the_mean_of_its_words():
    model = make("skip_gram")
    tokens, lengths = torch.tensor([[5, 6, 9], [7, 0, 0]]), torch.tensor([3, 1])
    (hidden,) = model.hidden_states(tokens, lengths)
    texts = model.summary(hidden, lengths)
    torch.testing.assert_close(texts[0], (model.input[5] + model.input[6] + model.input[9]) / 3)
    torch.testing.assert_close(texts[1], model.input[7])
    assert model.special_tokens([UNK, 7]) == [UNK, 7]
    assert model.special_tokens([]) == [END]
