"""Batches of word2vec and fastText: sub-sampling, sizes of contexts, distribution of the noise."""

import math
from typing import Any

import numpy as np
import pytest

from components.core.errors import DataError
from components.models.word2vec import Word2VecConfig
from components.tokenization.special import END
from components.training.pretraining import negatives
from components.training.pretraining.negatives import (
    NegativeSampler,
    keep_probabilities,
    noise_distribution,
    piece_counts,
)
from tests.training.helpers import MemoryStore, numbered_store

VOCABULARY = 900


def sampler(store: MemoryStore, **changes: Any) -> NegativeSampler:
    config = Word2VecConfig(vocabulary=VOCABULARY, **changes)
    return NegativeSampler(store, batch_size=4, window=30, seed=3, vocabulary=VOCABULARY, config=config)


def test_frequent_words_are_kept_with_the_probability_of_the_published_code():
    counts = np.array([0, 900, 90, 9, 1])
    actual = keep_probabilities(counts, 1e-2)
    # word2vec.c: (sqrt(f / t) + 1) * t / f, f the relative frequency.
    expected = [(math.sqrt(count / 10) + 1) * 10 / count for count in (900, 90)]
    np.testing.assert_allclose(actual[1:3], expected)
    np.testing.assert_allclose(expected, [0.1165, 0.4444], atol=1e-4)
    assert actual[3:].tolist() == [1, 1]
    assert keep_probabilities(counts, 0).tolist() == [1] * 5


@pytest.mark.parametrize("subsample", [0, 0.0005])
def test_contexts_stay_in_their_document_and_skip_dropped_words(subsample):
    store = numbered_store(documents=40, sentences=2, length=3)
    sample = sampler(store, subsample=subsample, context=3)
    document_of = {piece: document for document in range(40) for piece in range(5 + 6 * document, 11 + 6 * document)}
    whole, cut = 0, 0
    for step in range(20):
        batch = {key: value.tolist() for key, value in sample.batch(step).items()}
        assert sum(batch["pairs"]) == pytest.approx(sum(map(sum, batch["left"])) + sum(map(sum, batch["right"])))
        assert len(set(batch["pairs"])) == 1
        for tokens, left, right in zip(batch["tokens"], batch["left"], batch["right"], strict=True):
            length = max(place for place, token in enumerate(tokens) if token) + 1
            assert not any(left[length:] + right[length:] + tokens[length:])
            assert END not in tokens
            for place in range(length):
                mine = [at for at in range(length) if document_of[tokens[at]] == document_of[tokens[place]]]
                most_left, most_right = place - mine[0], mine[-1] - place
                assert 0 <= left[place] <= min(3, most_left) and 0 <= right[place] <= min(3, most_right)
                # The same size on both sides, truncated at the end of the document.
                reach = max(left[place], right[place])
                assert left[place] == min(reach, most_left) and right[place] == min(reach, most_right)
                assert reach >= 1 or most_left == most_right == 0
                whole, cut = whole + (len(mine) == 6), cut + (len(mine) < 6)
    assert whole > cut if subsample == 0 else cut > whole


def test_a_text_without_words():
    with pytest.raises(DataError, match="the corpus contains no words, only ends of documents; add text"):
        sampler(MemoryStore([[[]]] * 40))


def test_noise_is_the_unigram_to_the_power_of_three_quarters():
    actual = noise_distribution(np.array([0, 1, 16, 81]), 0.75)
    np.testing.assert_allclose(actual, np.array([0, 1, 8, 27]) / 36)
    np.testing.assert_allclose(noise_distribution(np.array([0, 3, 9]), 0), [0, 0.5, 0.5])


def test_pieces_are_counted_across_chunks(monkeypatch):
    store = MemoryStore([[[7, 8, 7]], [[9, 7]]])
    monkeypatch.setattr(negatives, "CHUNK", 2)
    assert piece_counts(store, 11).tolist() == [0, 0, 0, 2, 0, 0, 0, 3, 1, 1, 0]
