"""Ids of unseen words: stable, with spellings, never stored."""

from typing import Any

import numpy as np
import pytest

from components.data.segmenters import Segmentation
from components.settings.tokenizer import WordSettings
from components.tokenization import Tokenizer, load_tokenizer
from components.tokenization import word as open_word
from components.tokenization.special import UNK
from components.tokenization.word import OpenWordTokenizer, train_open_word, train_word

KNOWN = ["the", "name", ","]


@pytest.fixture
def tokenizer(make: Any) -> Tokenizer:
    return make("open_word", KNOWN)


def test_unseen_words_get_ids_in_order_of_occurrence(tokenizer):
    (ids,) = tokenizer.encode_batch(["The bucket, the Role; bucket NAME"])
    assert ids.tolist() == [5, 8, 7, 5, 9, 10, 8, 6]
    assert [tokenizer.spelling(int(id_)) for id_ in ids] == ["the", "bucket", ",", "the", "role", ";", "bucket", "name"]
    assert ids.dtype == np.int32
    assert tokenizer.vocab_size == 8


def test_stored_and_counted_ids_are_of_the_closed_vocabulary(tokenizer):
    tokenizer.encode_batch(["the bucket"])
    ids, offsets = tokenizer.encode_ragged(["the bucket", "name"])
    assert (ids.tolist(), offsets.tolist()) == ([5, UNK, 6], [0, 2, 3])


def test_the_fingerprint_does_not_depend_on_unseen_words(tokenizer, tmp_path):
    fresh = tokenizer.fingerprint()
    tokenizer.save(tmp_path)
    tokenizer.encode_batch(["quick brown words", "that the probes hold too"])
    assert tokenizer.fingerprint() == fresh
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, OpenWordTokenizer)
    assert loaded.fingerprint() == fresh
    # Neither does storing one that has met words carry them along.
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).encode_batch(["other"])[0].tolist() == [8]


def test_words_of_a_language_without_spaces(make):
    tokenizer = make("open_word", ["การ"], segmenter="thai", strip=False)
    ids, spans = tokenizer.encode_with_offsets("การตัดคำ")
    assert [tokenizer.spelling(int(id_)) for id_ in ids] == ["การ", "ตัด", "คำ"]
    assert spans == [(0, 3), (3, 6), (6, 8)]
    assert tokenizer.encode_batch(["การตัดคำ"])[0].tolist() == ids.tolist()


def test_the_number_of_unseen_words_is_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr(open_word, "MOST_UNSEEN", 2)
    assert tokenizer.encode_batch(["one two three one four two"])[0].tolist() == [8, 9, UNK, 8, UNK, 9]
    assert tokenizer.encode_with_offsets("three two")[0].tolist() == [UNK, 9]


def test_an_assigned_id_does_not_change(tokenizer):
    tokenizer.encode_batch(["bucket"])
    ids, spans = tokenizer.encode_with_offsets("role  Bucket")
    assert (ids.tolist(), spans) == ([9, 8], [(0, 4), (6, 12)])
    assert [ids.tolist() for ids in tokenizer.encode_batch(["queue role", "bucket"])] == [[10, 9], [8]]


def test_a_very_long_word_is_unknown(tokenizer):
    assert tokenizer.encode_batch(["x" * 256 + " " + "x" * 257])[0].tolist() == [8, UNK]


def test_the_vocabulary_equals_that_of_the_word_tokenizer():
    settings, none = WordSettings(vocabulary=8, min_frequency=1), Segmentation("none")
    texts = ["the names of the list", "Café the names"]
    opened, closed = (train(texts, settings=settings, segmentation=none) for train in (train_open_word, train_word))
    assert (opened.pieces, opened.strip_accents) == (closed.pieces, closed.strip_accents)
    assert opened.encode_batch(["of cafe list"])[0].tolist()[-1] >= 8
