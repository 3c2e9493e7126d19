"""WordPiece by tokie: the ids of the `tokenizers` library, or the library itself."""

from __future__ import annotations

import multiprocessing
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.settings.tokenizer import WordPieceSettings
from components.tokenization import fast_wordpiece, load_tokenizer, wordpiece
from components.tokenization.fast_wordpiece import FastWordPiece
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.wordpiece import WordPieceTokenizer, train_wordpiece

pytest.importorskip("tokie")
#: (lowercase, strip_accents) of BERT uncased, uncased with marks that are letters, cased.
NORMALISERS = [(True, True), (True, False), (False, False)]


ANY = st.one_of(st.characters(min_codepoint=32, max_codepoint=0x2FF), st.characters(), st.sampled_from("ingAΣ -'\t"))


def accepted(character: str) -> bool:
    return fast_wordpiece._OTHER.match(character) is None


CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000 and accepted(chr(code))]


@cache
def all_pieces() -> list[str]:
    """Every accepted character is a piece, and so are the characters that the normaliser makes of it."""
    known = set(CHARACTERS)
    for character in CHARACTERS:
        for form in (character, character.lower()):
            known.update(unicodedata.normalize("NFD", form) + form)
    return [*SPECIAL_PIECES, *sorted(known), *("##" + character for character in sorted(known)), "ing", "##ing"]


@cache
def tokenizer_of(lowercase: bool, strip_accents: bool) -> WordPieceTokenizer:
    return WordPieceTokenizer(
        all_pieces(), segmentation=Segmentation("none"), lowercase=lowercase, strip_accents=strip_accents
    )


def small(*, lowercase: bool, strip_accents: bool) -> WordPieceTokenizer:
    pieces = [*SPECIAL_PIECES, "a", "##b"]
    return WordPieceTokenizer(
        pieces, segmentation=Segmentation("none"), lowercase=lowercase, strip_accents=strip_accents
    )


def of_library(tokenizer: WordPieceTokenizer, texts: Sequence[str]) -> list[list[int]]:
    encodings = tokenizer.backend.encode_batch_fast(list(texts), add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


@pytest.mark.parametrize("key", NORMALISERS)
def test_every_accepted_character_equals_the_library(key: tuple[bool, bool]) -> None:
    tokenizer = tokenizer_of(*key)
    assert tokenizer._fast is not None
    texts = [f"a{character}b" for character in CHARACTERS if tokenizer._fast.accepts(character)]
    assert len(texts) > 90_000
    expected = of_library(tokenizer, texts)
    ids, lengths = tokenizer._fast.encode(texts)
    assert lengths.tolist() == [len(row) for row in expected]
    assert ids.tolist() == [one for row in expected for one in row]


@pytest.mark.parametrize("key", NORMALISERS)
@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(ANY), max_size=4))
def test_texts_equal_the_library(key: tuple[bool, bool], texts: list[str]) -> None:
    tokenizer = tokenizer_of(*key)
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    ids, offsets = tokenizer.encode_ragged(texts)
    found = [ids[start:end].tolist() for start, end in zip(offsets, offsets[1:], strict=False)]
    assert found == of_library(tokenizer, texts)


@pytest.mark.parametrize("letter", ["x", "é", "ก", "語"])
def test_words_at_the_limit_of_their_length(letter: str) -> None:
    tokenizer = tokenizer_of(False, False)
    texts = [letter * count for count in (49, 50, 51, 99, 100, 101, 102)]
    assert [row.tolist() for row in tokenizer.encode_batch(texts)] == of_library(tokenizer, texts)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ((True, True), "\x7f"),
        ((True, True), "a\u0378"),  # not assigned
        ((True, True), "\u0eba"),
        ((True, False), "ΟΔΟΣ"),
        ((False, False), "\ue000"),
    ],
)
def test_other_texts_are_left_to_the_library(key: tuple[bool, bool], text: str) -> None:
    tokenizer = tokenizer_of(*key)
    assert tokenizer._fast is not None
    assert not tokenizer._fast.accepts(text)
    assert [row.tolist() for row in tokenizer.encode_batch(["plain", text, text, "b"])] == of_library(
        tokenizer, ["plain", text, text, "b"]
    )


def test_a_normaliser_that_tokie_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not FastWordPiece.suits(lowercase=False, strip_accents=True)
    assert small(lowercase=False, strip_accents=True)._fast is None
    assert small(lowercase=True, strip_accents=True)._fast is not None
    monkeypatch.setattr(fast_wordpiece, "tokie", None)
    assert small(lowercase=True, strip_accents=True)._fast is None


class Wrong(FastWordPiece):
    """Gives the first id 5."""

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        ids, lengths = super().encode(texts)
        ids[:1] = 5
        return ids, lengths


def test_a_vocabulary_with_other_ids_is_encoded_by_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts = ["the cat sat on the mat", "the dog sat too"] * 20
    size = WordPieceSettings(vocabulary=30, min_frequency=1)
    exact = train_wordpiece(texts, settings=size, segmentation=Segmentation("none"))
    assert exact.fast
    monkeypatch.setattr(wordpiece, "FastWordPiece", Wrong)
    learned = train_wordpiece(texts, settings=size, segmentation=Segmentation("none"))
    assert not learned.fast
    assert learned.fingerprint() == exact.fingerprint()
    learned.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, WordPieceTokenizer)
    assert not loaded.fast


@pytest.mark.parametrize("key", NORMALISERS)
@given(text=st.text(st.sampled_from("aA-'. \t\n\rings1_"), max_size=30))
@settings(deadline=None, max_examples=60)
def test_offsets_equal_the_librarys(key: tuple[bool, bool], text: str) -> None:
    tokenizer = tokenizer_of(*key)
    ids, spans = tokenizer.encode_with_offsets(text)
    encoding = tokenizer.backend.encode(text, add_special_tokens=False)
    assert (ids.tolist(), spans) == (encoding.ids, encoding.offsets)


def test_offsets_of_unknown_words_are_the_librarys() -> None:
    tokenizer = small(lowercase=True, strip_accents=True)
    ids, spans = tokenizer.encode_with_offsets(" ab  xyz\x00 AB")
    assert ids.tolist() == [5, 6, 1, 5, 6]
    assert spans == [(1, 2), (2, 3), (5, 8), (10, 11), (11, 12)]


def _encode_in_child(tokenizer: WordPieceTokenizer, done: Callable[[list[int]], None]) -> None:
    done(tokenizer.encode_batch(["the mat"])[0].tolist())


def test_a_forked_process_encodes() -> None:
    tokenizer = tokenizer_of(True, True)
    expected = tokenizer.encode_batch(["the mat"])[0].tolist()  # starts tokie's threads
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[list[int]] = context.Queue()
    process = context.Process(target=_encode_in_child, args=(tokenizer, queue.put))
    process.start()
    assert queue.get(timeout=30) == expected
    process.join()
