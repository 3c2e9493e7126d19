"""Encoding gives exactly the ids of the library's `encode_batch`, also by distinct words."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.tokenization import distinct
from components.tokenization.bpe import SEPARATOR
from components.tokenization.distinct import DistinctWordEncoder
from components.tokenization.unigram import WORDS as WORDS_OF_UNIGRAM
from tests.tokenization import test_bpe as bpe
from tests.tokenization import test_unigram as unigram
from tests.tokenizers import make_tokenizer

# Letters that change under case folding or decomposition, marks, joiners, controls, every sort of white space,
# punctuation in and outside ASCII, CJK, Thai, emoji, the special pieces' own characters.
NASTY = (
    "abIiZz09\u0130\u00df\u00e9\u00c5\u212b\ufb01\u01c5\u1e9e\u03a3\u03c2\u0345\u0301\u0323\u0e31\u0e01\u0e33\u200d\u200b\u200e\ufe0f\ufeff\u00ad"
    "\x00\x01\x0b\x0c\x1c\x1f\x7f\x80\x85\u2028\u2029 \t\n\r\u00a0\u1680\u2003\u202f\u3000"
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\u00a1\u00ab\u2010\u2019\u3001\uff01\u0964$+<^`|~\u20ac\u00b4"
    "\u4e2d\u6587\u3042\uac00\u1100\u1161\U00020000\uf900\U0001f600\U0001f1f9\u2764\ufffd\ufffe\U0010ffff"
)
WORDS = ["ab", "##b", "[MASK]", "[UNK]", "##ing", "\u4e2d\u6587", "a.b", "naïve", "x" * 99, "y" * 120, "e\u0301"]

nasty_texts = st.lists(
    st.one_of(st.text(NASTY, max_size=30), st.text(max_size=15), st.lists(st.sampled_from(WORDS)).map("".join)),
    max_size=6,
).map("".join)


LETTERS = [character for character in dict.fromkeys(NASTY + "cdefghijklmnopqrstuvwxyı") if not character.isspace()]
PIECES = [*LETTERS, *(f"##{letter}" for letter in LETTERS), "ab", "##bb", "in", "##ing"]
VARIANTS = {
    f"{kind}, {form}": make_tokenizer(kind, PIECES, lowercase=form != "cased", strip=form == "stripped")
    for kind in ("wordpiece", "word")
    for form in ("stripped", "lower", "cased")
}
#: A tokenizer of a published file has another way through the library.
FOREIGN = make_tokenizer(
    "unigram", unigram.PLAIN.pieces[5:], scores=unigram.PLAIN.scores, normalizer=unigram.PLAIN.normalizer,
    pre_tokenizer={"type": "Sequence", "pretokenizers": WORDS_OF_UNIGRAM["pretokenizers"], "ours": False},
)  # fmt: skip
TOKENIZERS = VARIANTS | {
    "bpe": bpe.PLAIN,
    "bpe, segmented": bpe.SEGMENTED,
    "unigram": unigram.PLAIN,
    "unigram, segmented": unigram.SEGMENTED,
    "unigram, foreign": FOREIGN,
}


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(nasty_texts, bpe.texts, unigram.texts), max_size=5))
def test_ids_equal_the_library(name, many):
    """And texts of byte pairs round trip."""
    tokenizer = TOKENIZERS[name]
    separator = SEPARATOR if tokenizer.kind == "bpe" else " "
    spaced = [tokenizer.segmentation.spaced(text, separator) for text in many]
    expected = [encoding.ids for encoding in tokenizer.backend.encode_batch(spaced, add_special_tokens=False)]
    assert [ids.tolist() for ids in tokenizer.encode_batch(many)] == expected
    if tokenizer.kind == "bpe":
        kept = many if tokenizer is bpe.PLAIN else [text.replace(SEPARATOR, "") for text in many]
        assert [tokenizer.decode(ids) for ids in expected] == kept


@pytest.mark.parametrize("name", ["wordpiece, stripped", "wordpiece, lower"])
def test_characters_of_every_block_equal_the_library(name):
    """Each code point of the first blocks and every 67th of the rest, next to letters, white space and punctuation."""
    points = [*range(0x3100), *range(0x3100, 0x110000, 67)]
    characters = [chr(point) for point in points if not 0xD800 <= point < 0xE000]
    texts = [f"a{character}b {character}. .{character}" for character in characters]
    tokenizer = VARIANTS[name]
    expected = [encoding.ids for encoding in tokenizer.backend.encode_batch_fast(texts, add_special_tokens=False)]
    assert [ids.tolist() for ids in tokenizer.encode_batch(texts)] == expected


def test_texts_are_separate_across_chunks_and_cleared_caches(monkeypatch):
    """Chunks of some bytes and a memory of some bytes change nothing."""
    monkeypatch.setattr(distinct, "CHUNK_BYTES", 16)
    monkeypatch.setattr(distinct, "MEMORY_BYTES", 24)
    monkeypatch.setattr(distinct, "LONGEST_REMEMBERED", 4)
    seen: list[str] = []

    def lengths(words):
        seen.extend(words)
        return [[len(word)] if word else [] for word in words]

    encoder = DistinctWordEncoder(lengths, lowercase=True)
    texts = ["", "a bb", "a", "", "ccc  bb\n", "BB dddddd dddddd a", " ", "bb,a"] * 3
    ids, offsets = encoder.encode(texts)
    expected = [[], [1, 2], [1], [], [3, 2], [2, 6, 6, 1], [], [2, 1, 1]] * 3
    assert [ids[start:end].tolist() for start, end in zip(offsets[:-1], offsets[1:], strict=True)] == expected
    assert offsets.dtype == np.int64 and ids.dtype == np.int32
    assert seen.count("a") > 1, "the memory was never emptied"
