"""Batches of translation pairs: complete pairs of similar length, each once per epoch; BLEU of both networks."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from components.core.errors import DataError
from components.models.encoder import build_model
from components.models.translation import TranslationModel
from components.tokenization.special import END, FIRST_ORDINARY, START, UNK
from components.training.pretraining.translation import SCORED, TranslationSampler, bleu
from tests.tokenizers import make_tokenizer
from tests.training.helpers import PairStore, numbered_pairs, numbered_store


def test_pairs_are_complete_and_each_occurs_once_per_epoch():
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


def test_long_pairs_are_truncated_to_the_window():
    store = PairStore([(range(5, 25), range(30, 50)), ([5, 6], [7])])
    batch = TranslationSampler(store, batch_size=2, window=8, seed=0, vocabulary=60).batch(0)
    row = int(batch["lengths"].argmax())
    assert batch["tokens"][row].tolist() == list(range(5, 13))
    assert batch["decoder_tokens"][row].tolist() == [START, *range(30, 37)]
    assert sorted(batch["targets"].tolist()) == [END, 7, *range(30, 38)]


def test_a_corpus_without_pairs():
    with pytest.raises(DataError, match=r"contains no pairs; a translation family needs data\.parallel"):
        TranslationSampler(numbered_store(), batch_size=4, window=8, seed=0, vocabulary=500)


WORDS = "abcdefghijk"
TOKENIZER = make_tokenizer("word", WORDS)
NETWORKS: dict[str, dict[str, Any]] = {
    "cove": {"embedding": 24, "hidden": 32, "layers": 1, "dropout": 0},
    "transformer": {"width": 64, "heads": 4, "layers": 1, "positions": 8, "dropout": 0, "dropout_attention": 0},
}


def network(family: str) -> TranslationModel:
    torch.manual_seed(0)
    return build_model(family, vocabulary=TOKENIZER.vocab_size, settings=NETWORKS[family])


@pytest.mark.parametrize("family", list(NETWORKS))
def test_translations_belong_to_their_pairs_and_unknown_words_match_nothing(family, monkeypatch):
    """A model that repeats the source. Pairs are translated in batches in the order of their lengths."""
    model, rng = network(family).eval(), np.random.default_rng(0)
    monkeypatch.setattr(model, "translate", lambda tokens, lengths, most: tokens)
    texts = [rng.integers(FIRST_ORDINARY, TOKENIZER.vocab_size, rng.integers(4, 7)).tolist() for _ in range(SCORED)]
    same = PairStore([(text, text) for text in [*texts, [7, 8]]])
    options = {"batch_size": 4, "window": 7, "seed": 0, "vocabulary": TOKENIZER.vocab_size}
    sampler = TranslationSampler(same, **options)
    assert len(sampler.translations(model, TOKENIZER)) == SCORED
    assert sampler.scores(model, TOKENIZER) == {"bleu": pytest.approx(100)}
    # The reference has six words, of which the last is unknown.
    text = [5, 6, 7, 8, 9, UNK]
    unknown = TranslationSampler(PairStore([(text, text)]), **options | {"batch_size": 1})
    assert unknown.translations(model, TOKENIZER) == ["a b c d e"]
    assert unknown.scores(model, TOKENIZER) == {"bleu": pytest.approx(100 * math.exp(1 - 6 / 5))}


def test_tokens_of_a_translation_step_are_source_pieces():
    walked = TranslationSampler(numbered_pairs(61), batch_size=4, window=12, seed=0, vocabulary=500)
    read = 0
    for step in range(2 * len(walked.cuts)):
        assert walked.tokens_before(step) == read
        read += int(walked.batch(step)["lengths"].sum())


def test_the_values_of_bleu():
    for translation, reference, expected in (
        ("a b c d e", "a b c d e", 100),
        # 4 of 5 words, 3 of 4 pairs, 2 of 3 triples and 1 of 2 sequences of four: (1 / 5)^(1 / 4).
        ("a b c d f", "a b c d e", 100 * 0.2**0.25),
        # All n-grams match; the brevity penalty is e^(1 - 6 / 4).
        ("a b c d", "a b c d e f", 100 * math.exp(-0.5)),
    ):
        assert bleu([translation], [reference], TOKENIZER) == pytest.approx(expected)
