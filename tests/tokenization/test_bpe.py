"""Byte-level BPE: exact merges, round trips, ids of the library, spans that cover the text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers
from transformers import GPT2TokenizerFast

from components.core.errors import DataError
from components.tokenization.bpe import SEPARATOR, BytePairTokenizer
from components.tokenization.special import FIRST_ORDINARY
from tests.tokenizers import learn, make_tokenizer

ENGLISH = ["the parameter's names, the 20 lists\n\n  of names don't we've!", "Thai text follows: "] * 3
THAI = ["การประมวลผลภาษาธรรมชาติ ก็ได้ ที่นี่ น้ำ"] * 3
# Everything that the pattern tells apart: letters, marks, numbers, punctuation, apostrophes, each kind of white space.
PARTS = st.sampled_from(
    [
        *"ab\u0e01\u0e33\u0e35\u0301é中ß", *"09\u0e51½", *"'!,._-$", "'s", "'ll", "'ve",
        *" \t\n\r\x0b\x0c\x85\xa0\u2003\u2028\u3000", "  ", "\n ", " \n",
        *"\x00\x1c\x1f\x7f\u200b\ufeff\ufdd0\ufdd1😀🇹🇭Ġ", "[MASK]",
    ]
)  # fmt: skip
texts = st.one_of(st.lists(PARTS, max_size=12).map("".join), st.text(max_size=12))


PLAIN, SEGMENTED = (learn(ENGLISH + THAI, "bpe", segmenter=name, vocabulary=290) for name in ("none", "thai"))


#: Of the same pieces, without marks in words.
GPT2 = make_tokenizer("bpe", PLAIN.pieces[5:], merges=PLAIN.merges, marks=False)


#: Runs of white space are pieces, and each digit is a word.
DIGITS = make_tokenizer(
    "bpe",
    [*PLAIN.pieces[5:], "ĠĠ", "ĊĠ", "ĠĠĠ", "Ġ1", "11"],
    merges=[*PLAIN.merges, ("Ġ", "Ġ"), ("Ċ", "Ġ"), ("ĠĠ", "Ġ"), ("Ġ", "1"), ("1", "1")],
    marks=False,
    digits=True,
)
LIBRARY = Backend.from_str(DIGITS.backend.to_str())
LIBRARY.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
)


@settings(max_examples=80, deadline=None)
@given(st.lists(texts.map(lambda text: text.replace("0", "11")), max_size=4))
def test_digits_are_words_of_their_own(many):
    expected = [encoding.ids for encoding in LIBRARY.encode_batch(many)]
    assert [ids.tolist() for ids in DIGITS.encode_batch(many)] == expected
    assert cut(DIGITS, "a  11") == ["a", "ĠĠ", "1", "1"]


def cut(tokenizer: BytePairTokenizer, text: str) -> list[str]:
    return [tokenizer.pieces[id_] for id_ in tokenizer.encode_batch([text])[0]]


def test_the_most_frequent_pair_is_merged_first():
    tokenizer = learn(["hug hug hug", "pug pug hugs"], "bpe", vocabulary=5 + 256 + 3)
    assert tokenizer.pieces[5:8] == ["!", '"', "#"]
    # "ug" comes 6 times, then "hug" 4 times, then " hug" 3 times.
    assert tokenizer.pieces[261:] == ["ug", "hug", "Ġhug"]
    assert cut(tokenizer, "hugs pug hug") == ["hug", "s", "Ġ", "p", "ug", "Ġhug"]


@settings(max_examples=60, deadline=None)
@given(texts)
def test_spans_tile_the_text(text):
    for tokenizer in (PLAIN, SEGMENTED):
        text = text.replace(SEPARATOR, "")
        ids, spans = tokenizer.encode_with_offsets(text)
        assert ids.tolist() == tokenizer.encode_batch([text])[0].tolist()
        position = 0
        for start, end in spans:
            # A character in several pieces is named by each of them.
            assert start in (position, position - 1) and end > start
            position = end
        assert position == len(text)


def test_lone_surrogates_become_the_replacement_character():
    ids = PLAIN.encode_batch(["a\ud800b"])[0]
    assert PLAIN.decode(ids) == "a\ufffdb"
    assert PLAIN.encode_with_offsets("a\ud800b")[0].tolist() == ids.tolist()


def test_names_of_special_pieces_in_text_are_ordinary_text():
    ids = PLAIN.encode_batch(["[MASK][PAD] [UNK]"])[0]
    assert ids.min() >= FIRST_ORDINARY
    assert PLAIN.decode([2, *ids, 3, 0]) == "[MASK][PAD] [UNK]"
    assert PLAIN.decode([4]) == "[MASK]"


def test_merges_of_another_vocabulary_are_an_error():
    with pytest.raises(ValueError, match="merges do not fit the pieces"):
        make_tokenizer("bpe", ["a"], merges=[("a", "b")])


def test_a_vocabulary_smaller_than_the_bytes():
    with pytest.raises(DataError, match=r"tokenizer.bpe.vocabulary: 200 pieces are too few, .* have 261;"):
        learn(ENGLISH, "bpe", vocabulary=200)


def test_text_is_split_like_gpt2s():
    vocabulary = {piece: index for index, piece in enumerate(PLAIN.pieces)} | {"<|endoftext|>": PLAIN.vocab_size}
    peer = GPT2TokenizerFast(vocab=vocabulary, merges=PLAIN.merges)
    for text in [*ENGLISH, *THAI, "I'll  see\tyou\n\n at 3:45pm's", "e\u0301a", "'''s"]:
        assert GPT2.encode_batch([text])[0].tolist() == peer(text, add_special_tokens=False)["input_ids"]


def test_combining_marks_are_part_of_words():
    word = "\u0e17\u0e35\u0e48"
    parts = {
        marks: t.backend.pre_tokenizer.pre_tokenize_str(f"a {word}") for marks, t in ((True, PLAIN), (False, GPT2))
    }
    assert [span for _, span in parts[True]] == [(0, 1), (1, 5)]
    assert [span for _, span in parts[False]] == [(0, 1), (1, 3), (3, 5)]


def test_segmented_words_are_pieces_without_spaces():
    tokenizer = learn(ENGLISH + THAI, "bpe", segmenter="thai", vocabulary=365)
    ids = tokenizer.encode_batch(["การประมวลผลภาษาธรรมชาติ ก็ได้"])[0]
    assert [tokenizer.decode([id_]) for id_ in ids] == ["การประมวลผล", "ภาษาธรรมชาติ", " ก็ได้"]
