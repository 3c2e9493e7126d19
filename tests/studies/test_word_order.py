"""Sentences and the same words in a random order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from components.core.errors import DataError
from components.data.segmenters import Segmentation
from components.studies import word_order
from components.studies.occurrences import sentence
from tests.studies.conftest import FILLER, findings

NONE = Segmentation("none")


def texts(count: int) -> list[str]:
    """Sentences of six words in alphabetic order, so that the order can be learned."""
    rng = np.random.default_rng(0)
    return [" ".join(sorted(rng.choice(FILLER, 6, replace=False))).capitalize() + "." for _ in range(count)]


def test_the_pieces_of_words_without_marks(outputs, add_encoder):
    add_encoder("gpt")
    encoder = outputs.encoder("gpt", "adapted")
    ids = {word: encoder.tokenizer.encode_batch([word])[0].tolist() for word in FILLER}
    long = "the red, old bank is here, there and a river of money"
    read = word_order.words_of(encoder, [sentence(text, NONE) for text in ("The bank is old.", long)])
    # Eight positions, of which one is for the start; the first sentence is too short.
    assert read == [[ids[word] for word in ("the", "red", "old", "bank", "is", "here", "there")]]


def test_means_over_padded_rows_are_the_means_of_each_row(outputs, add_encoder):
    add_encoder("ulmfit")
    encoder = outputs.encoder("ulmfit", "adapted")
    rows = [[[7], [8, 9], [10]], [[11], [7], [12], [13], [14]], [[9]]]
    actual = word_order.means(encoder, rows)
    for row, words in enumerate(rows):
        tokens = torch.tensor([encoder.model.special_tokens([piece for word in words for piece in word])])
        with torch.no_grad():
            hidden = encoder.model.hidden_states(tokens, torch.tensor([tokens.shape[1]]))
        for layer, expected in zip(actual, hidden, strict=True):
            assert torch.allclose(layer[row], expected[0].mean(0), atol=1e-6)


def test_static_vectors_guess_and_contextual_ones_do_not(outputs, add_encoder, add_corpus):
    add_corpus("domain", texts(200))
    for name in ("word2vec", "ulmfit"):
        add_encoder(name)
    outputs.params.run.__dict__["families"] = ["word2vec", "ulmfit"]
    actual = findings(outputs, "word-order", sentences=200, seeds=2)
    (rows,) = actual.numbers.values()
    means = [row["accuracy"]["mean"] for row in rows]
    assert [row["encoder"] for row in rows] == ["word2vec-adapted", *["ulmfit-adapted"] * 3]
    assert means[:2] == [0.5, 0.5] and means[-1] > 0.6
    assert actual.chapter.tables[0].rows[0] == ["word2vec-adapted", "0", "0.500"]
    assert actual.chapter.lead[0] == "word2vec-adapted tells 0.500 of the sentences from their words in a random order."
    assert "word2vec-adapted" in actual.chapter.figures[0].svg


def test_too_few_words(outputs, add_encoder, add_corpus):
    add_corpus("domain", ["The bank is old."] * 30)
    add_encoder("word2vec")
    with pytest.raises(DataError, match="no 5 words of a sentence are in word2vec's positions"):
        findings(outputs, "word-order", encoder="word2vec", sentences=20)
