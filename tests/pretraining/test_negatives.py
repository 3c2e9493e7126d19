"""Batches of word2vec and fastText: sub-sampling, sizes of contexts, distribution of the noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from components.errors import DataError
from components.models.fasttext import FastTextConfig
from components.models.word2vec import Word2VecConfig
from components.pretraining import negatives
from components.pretraining.negatives import NegativeSampler, keep_probabilities, noise_distribution, piece_counts
from components.tokenization.special import END
from tests.training.helpers import MemoryStore, numbered_store

VOCABULARY = 900


def sampler(store: MemoryStore, **changes: Any) -> NegativeSampler:
    config = Word2VecConfig(vocabulary=VOCABULARY, **changes)
    return NegativeSampler(store, batch_size=4, window=30, seed=3, vocabulary=VOCABULARY, config=config)


def test_frequent_words_are_kept_with_the_probability_of_the_published_code() -> None:
    counts = np.array([0, 900, 90, 9, 1])
    found = keep_probabilities(counts, 1e-2)
    # word2vec.c: (sqrt(f / t) + 1) * t / f, f the relative frequency.
    expected = [(math.sqrt(count / 10) + 1) * 10 / count for count in (900, 90)]
    np.testing.assert_allclose(found[1:3], expected)
    np.testing.assert_allclose(expected, [0.1165, 0.4444], atol=1e-4)
    assert found[3:].tolist() == [1, 1]
    assert keep_probabilities(counts, 0).tolist() == [1] * 5


def test_noise_is_the_unigram_to_the_power_of_three_quarters() -> None:
    found = noise_distribution(np.array([0, 1, 16, 81]), 0.75)
    np.testing.assert_allclose(found, np.array([0, 1, 8, 27]) / 36)
    np.testing.assert_allclose(noise_distribution(np.array([0, 3, 9]), 0), [0, 0.5, 0.5])


def test_pieces_are_counted_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore([[[7, 8, 7]], [[9, 7]]])
    monkeypatch.setattr(negatives, "CHUNK", 2)
    assert piece_counts(store, 11).tolist() == [0, 0, 0, 2, 0, 0, 0, 3, 1, 1, 0]


def skewed(documents: int = 300) -> MemoryStore:
    """Word 5 is half of the text, 6 a quarter, the rest are rare."""
    rng = np.random.default_rng(1)
    rare = iter(rng.integers(7, VOCABULARY, documents * 40).tolist())
    texts = [
        [(5, 6)[kind] if kind < 2 else next(rare) for kind in rng.choice([0, 0, 1, 2], 40)] for _ in range(documents)
    ]
    return MemoryStore([[text] for text in texts])


def test_samples_follow_the_formulas() -> None:
    store = skewed()
    sample = sampler(store, subsample=0.01, context=4, noise_words=200)
    seen, noise, reach = np.zeros(VOCABULARY), np.zeros(VOCABULARY), np.zeros(5)
    # About one epoch: every segment once, so the expectations follow from the counts of the text.
    for step in range(sample.slots // 4):
        batch = sample.batch(step)
        real = batch["left"] + batch["right"] > 0
        seen += np.bincount(batch["tokens"][real], minlength=VOCABULARY)
        noise += np.bincount(batch["noise"].flatten(), minlength=VOCABULARY)
        reach += np.bincount(batch["left"][:, 8:20][real[:, 8:20]].flatten(), minlength=5)
    counts = piece_counts(store, VOCABULARY)
    counts[END] = 0
    keep, chance = keep_probabilities(counts, 0.01), noise_distribution(counts, 0.75)
    np.testing.assert_allclose(seen[5:7] / counts[5:7], keep[5:7], rtol=0.1)
    assert seen[7:].sum() / counts[7:].sum() == pytest.approx(1, abs=0.05)
    assert noise[END] == 0 and noise[noise > 0].sum() == noise.sum()
    np.testing.assert_allclose(noise[5:7] / noise.sum(), chance[5:7], rtol=0.05)
    # Uniform between 1 and 4 words, except at the beginning of a document.
    assert reach[4] == pytest.approx(reach[1:].sum() / 4, rel=0.3) and reach[1:].min() > 0


def test_every_segment_occurs_once_per_epoch() -> None:
    store = numbered_store(documents=40)
    sample = sampler(store, subsample=0)
    starts = [sample._start(row) for row in range(2 * sample.slots)]
    assert sample.slots == store.tokens // 30
    for epoch in (starts[: sample.slots], starts[sample.slots :]):
        assert np.diff(sorted(epoch)).tolist() == [30] * (sample.slots - 1)
    assert starts[: sample.slots] != starts[sample.slots :]


@pytest.mark.parametrize("subsample", [0, 0.0005])
def test_contexts_stay_in_their_document_and_skip_dropped_words(subsample: float) -> None:
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


def test_cbow_counts_a_pair_for_every_word_with_a_context() -> None:
    sample = sampler(numbered_store(documents=40), architecture="cbow", context=2)
    batch = sample.batch(0)
    assert round(float(batch["pairs"].sum())) == int((batch["left"] + batch["right"] > 0).sum())
    gram = sampler(numbered_store(documents=40), context=2).batch(0)
    assert all(torch.equal(batch[key], gram[key]) for key in ("tokens", "left", "right", "noise"))


def test_fasttext_has_the_same_batches() -> None:
    store = numbered_store(documents=40)
    options: dict[str, Any] = {"batch_size": 4, "window": 30, "seed": 3, "vocabulary": VOCABULARY}
    one = NegativeSampler(store, config=FastTextConfig(vocabulary=VOCABULARY), **options).batch(3)
    other = NegativeSampler(store, config=Word2VecConfig(vocabulary=VOCABULARY), **options).batch(3)
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_text_without_words() -> None:
    with pytest.raises(DataError, match="the corpus contains no words, only ends of documents; add text"):
        sampler(MemoryStore([[[]]] * 40))
