"""Unigram: EM compared with enumeration, the library's ids, round trips, Thai."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.core.errors import ArtifactError
from components.tokenization.special import FIRST_ORDINARY, UNK
from components.tokenization.unigram import (
    _expected,
    _lattices,
    _pruned,
    learn_unigram,
)
from tests.tokenizers import learn, make_tokenizer

PIECES = ["a", "b", "ab", "ba", "aba"]
SCORES = np.log([0.3, 0.25, 0.2, 0.15, 0.1])
TEXTS = ["The parameters' names, the list", "unnamed lists of parameters 2026", "การประมวลผลภาษา ที่นี่ น้ำ"] * 4
PARTS = st.sampled_from(
    [
        *"abtéÅ\u0301\u0e01\u0e33\u0e35ﬁ①中09.,'▁", *" \t\n\r\x0b\x0c\x85\xa0\u2003\u3000\x00\x1c\u200b\ufeff",
        "[MASK]", "name",
    ]
)  # fmt: skip
texts = st.one_of(st.lists(PARTS, max_size=12).map("".join), st.text(max_size=12))


def segmentations(word: str) -> Iterator[list[str]]:
    for cuts in itertools.product([False, True], repeat=len(word) - 1):
        parts, start = [], 0
        for place, cut in enumerate(cuts, 1):
            if cut:
                parts.append(word[start:place])
                start = place
        parts.append(word[start:])
        if all(part in PIECES for part in parts):
            yield parts


PLAIN, SEGMENTED = (learn(TEXTS, "unigram", segmenter=name, vocabulary=45) for name in ("none", "thai"))


def test_expected_counts_equal_an_enumeration_of_segmentations():
    words, times = ["ababa", "ba", "a"], np.array([3.0, 2.0, 1.0])
    expected = dict.fromkeys(PIECES, 0.0)
    for word, count in zip(words, times, strict=True):
        paths = list(segmentations(word))
        weights = [math.exp(sum(SCORES[PIECES.index(piece)] for piece in path)) for path in paths]
        for path, weight in zip(paths, weights, strict=True):
            for piece in path:
                expected[piece] += count * weight / sum(weights)
    actual = _expected(_lattices(words, PIECES), times, SCORES)
    assert actual.tolist() == pytest.approx([expected[piece] for piece in PIECES], rel=1e-12)


def test_pieces_with_the_least_loss_of_likelihood_are_removed():
    counts = np.array([5.0, 5.0, 4.0, 4.0, 1.0])
    loss = {
        piece: count * (score - max(sum(SCORES[PIECES.index(part)] for part in path) for path in others))
        for piece, count, score in zip(PIECES, counts, SCORES, strict=True)
        if (others := [path for path in segmentations(piece) if path != [piece]])
    }
    kept = sorted(loss, key=lambda piece: -loss[piece])[:1]
    pieces, scores = _pruned(PIECES, counts, SCORES, room=3)
    assert pieces == ["a", "b", *kept]
    assert scores.tolist() == [SCORES[PIECES.index(piece)] for piece in pieces]


def test_the_characters_of_a_piece_are_of_one_kind():
    learned = [piece for piece, _ in learn_unigram({"▁ab1.": 100, "▁1.1": 50}, size=100)]
    assert all(
        len({character.isalnum() + character.isalpha() for character in piece.lstrip("▁")}) <= 1 for piece in learned
    )
    assert "▁ab" in learned


@settings(max_examples=60, deadline=None)
@given(texts)
def test_text_is_never_encoded_to_special_pieces_except_unknown(text):
    ids = PLAIN.encode_batch([text])[0].tolist()
    assert all(id_ >= FIRST_ORDINARY or id_ == UNK for id_ in ids)
    if UNK not in ids:
        assert PLAIN.encode_batch([PLAIN.decode(ids)])[0].tolist() == ids


def test_thai_vowels_are_composed_and_words_decoded_without_spaces():
    text = "การประมวลผลภาษา น้ำ"
    ids = SEGMENTED.encode_batch([text])[0]
    assert UNK not in ids
    assert SEGMENTED.decode(ids) == text.replace(" ", "")
    assert SEGMENTED.decode(SEGMENTED.encode_batch(["list น้ำ names"])[0]) == "list น้ำ names"


def test_scores_of_another_vocabulary_are_an_error():
    with pytest.raises(ArtifactError, match="1 scores for 6 pieces"):
        make_tokenizer("unigram", ["a"], scores=[0.0])


def test_decoded_text_is_normalised():
    cased = learn(TEXTS, "unigram", vocabulary=45, lowercase=False)
    assert PLAIN.decode(PLAIN.encode_batch(["  The  Names,\nthe list "])[0]) == "the names, the list"
    assert cased.decode(cased.encode_batch(["The names"])[0]) == "The names"
    assert PLAIN.decode([2, *PLAIN.encode_batch(["names"])[0], 3, 0]) == "names"
    assert PLAIN.decode(PLAIN.encode_batch(["中 list"])[0]).endswith("\ufffd list")


def test_special_pieces_of_others_are_text():
    tokenizer = make_tokenizer("unigram", ["▁the", "s", "▁", " <s>"], lowercase=False)
    assert 8 not in tokenizer.encode_batch(["<s> the <s>"])[0]
