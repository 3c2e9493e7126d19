"""Batches of translation pairs: complete pairs of similar length, each once per epoch."""

from __future__ import annotations

import pytest
import torch

from components.core.errors import DataError
from components.tokenization.special import END, START
from components.training.pretraining.translation import TranslationSampler
from tests.training.helpers import PairStore, numbered_pairs, numbered_store


def test_pairs_are_complete_and_each_occurs_once_per_epoch() -> None:
    store = numbered_pairs(61)
    pairs = TranslationSampler(store, batch_size=4, window=12, seed=0, vocabulary=500)
    steps = len(pairs.cuts) - 1
    orders = []
    for epoch in range(2):
        seen = []
        for step in range(epoch * steps, (epoch + 1) * steps):
            batch = pairs.batch(step)
            tokens, lengths = batch["tokens"], batch["lengths"]
            rows, width = batch["decoder_tokens"].shape
            assert len(tokens) == len(lengths) == rows
            assert rows % 4 == 0
            # Batches of rows shorter than the window have more rows, and little padding.
            assert 0.6 < rows * int(lengths.max()) / (4 * 12) < 1.5
            assert int(lengths.min()) >= int(lengths.max()) - 4
            targets = batch["targets"].split(torch.bincount(batch["places"] // width).tolist())
            for row, target in enumerate(targets):
                pair = store.starting.index(int(tokens[row, 0]))
                seen.append(pair)
                length = int(lengths[row])
                assert tokens[row, :length].tolist() == store.document(pair).tolist()
                assert (tokens[row, length:] == 0).all()
                assert target.tolist() == store.target(pair).tolist()
                decoder = batch["decoder_tokens"][row]
                assert decoder[: len(target)].tolist() == [START, *target[:-1].tolist()]
                assert (decoder[len(target) :] == 0).all()
            places = [row * width + place for row, target in enumerate(targets) for place in range(len(target))]
            assert batch["places"].tolist() == places
            assert batch["whole"].tolist() == [[len(places), rows]] * rows
        # 61 pairs in batches of four: three of them occur twice.
        assert len(seen) == 64
        assert set(seen) == set(range(61))
        orders.append(seen)
    assert orders[0] != orders[1]


def test_tokens_of_a_translation_step_are_source_pieces() -> None:
    walked = TranslationSampler(numbered_pairs(61), batch_size=4, window=12, seed=0, vocabulary=500)
    read = 0
    for step in range(2 * len(walked.cuts)):
        assert walked.tokens_before(step) == read
        read += int(walked.batch(step)["lengths"].sum())


def test_long_pairs_are_truncated_to_the_window() -> None:
    store = PairStore([(range(5, 25), range(30, 50)), ([5, 6], [7])])
    batch = TranslationSampler(store, batch_size=2, window=8, seed=0, vocabulary=60).batch(0)
    row = int(batch["lengths"].argmax())
    assert batch["tokens"][row].tolist() == list(range(5, 13))
    assert batch["decoder_tokens"][row].tolist() == [START, *range(30, 37)]
    assert sorted(batch["targets"].tolist()) == [END, 7, *range(30, 38)]


def test_a_corpus_without_pairs() -> None:
    with pytest.raises(DataError, match=r"contains no pairs; a translation family needs data\.parallel"):
        TranslationSampler(numbered_store(), batch_size=4, window=8, seed=0, vocabulary=500)
