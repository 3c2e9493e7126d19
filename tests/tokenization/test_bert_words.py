"""BERT's word splitting and WordPiece: exact values like google-research/bert tokenization_test.py."""

import pytest

from components.tokenization import Tokenizer


def cut(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.pieces[id_] for id_ in tokenizer.encode_batch([text])[0]]


MARKS = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def test_offsets_are_positions_in_the_original_text(make):
    tokenizer = make("wordpiece", ["na", "##ive", "cafe", "!", "x"])
    text = "  Nai\u0308ve \x00caf\u00e9!\tx"
    ids, spans = tokenizer.encode_with_offsets(text)
    assert ids.tolist() == [5, 6, 7, 8, 9]
    assert [text[start:end] for start, end in spans] == ["Na", "i\u0308ve", "caf\u00e9", "!", "x"]


def test_offsets_after_inserted_spaces(make):
    words = ["การ", "ตัด", "คำ", "ภาษาไทย", "aws", "\U0001f600"]
    tokenizer = make("word", words, segmenter="thai", strip=False)
    text = "aws การตัดคำ\U0001f600ภาษาไทยaws"
    ids, spans = tokenizer.encode_with_offsets(text)
    assert [text[start:end] for start, end in spans] == ["aws", "การ", "ตัด", "คำ", "\U0001f600", "ภาษาไทย", "aws"]
    assert ids.tolist() == tokenizer.encode_batch([text])[0].tolist() == [9, 5, 6, 7, 10, 8, 9]


def test_lone_surrogates_are_removed_like_other_invalid_characters(make):
    tokenizer = make("word", ["ab", "c"])
    text = "a\ud800b c"
    assert tokenizer.encode_batch(["c", text])[1].tolist() == [5, 6]
    ids, spans = tokenizer.encode_with_offsets(text)
    assert ids.tolist() == [5, 6]
    assert spans == [(0, 3), (4, 5)]


def test_decode_uses_english_spacing(make):
    pieces = ["it", "'", "s", "a", "(", "well", "-", "known", ")", "test", ",", "##ed", ".", "$", "5"]
    tokenizer = make("wordpiece", pieces)
    text = "it's a (well-known) tested, $5."
    ids = tokenizer.encode_batch([text])[0]
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode([2, *ids, 3, 0, 0]) == text
    assert tokenizer.decode([1, 4]) == "[UNK] [MASK]"


@pytest.mark.parametrize(
    "text", ["Don't stop-me; now! (or: never?)", "x = {'a': [1, 2]}  # 50%", 'he said "no" / _yes_']
)
def test_decoded_text_is_encoded_to_the_same_ids(make, text):
    tokenizer = make(
        "wordpiece",
        [
            *"abcdefghijklmnopqrstuvwxyz0123456789",
            *map("##{}".format, "abcdefghijklmnopqrstuvwxyz0"),
            *"';-!(:?)={}[],#%\"/_",
        ],
    )
    ids = tokenizer.encode_batch([text])[0]
    assert 1 not in ids
    assert tokenizer.encode_batch([tokenizer.decode(ids)])[0].tolist() == ids.tolist()


def test_wordpiece_matches_the_longest_piece_first(make):
    tokenizer = make("wordpiece", ["want", "##want", "##ed", "wa", "un", "runn", "##ing"])
    assert tokenizer.encode_batch(["", "unwanted running", "unwantedX running"])[1].tolist() == [9, 6, 7, 10, 11]
    assert cut(tokenizer, "") == []
    assert cut(tokenizer, "unwanted running") == ["un", "##want", "##ed", "runn", "##ing"]
    assert cut(tokenizer, "unwantedX running") == ["[UNK]", "runn", "##ing"]


@pytest.mark.parametrize(
    ("pieces", "text", "expected"),
    [
        ("hello ! how are you ?", " \tHeLLo!how  \n Are yoU?  ", "hello ! how are you ?"),
        ("hello", "H\u00e9llo He\u0301llo", "hello hello"),
        ("ah \u535a \u63a8 zz", "ah\u535a\u63a8zz", "ah \u535a \u63a8 zz"),
        # Control characters are removed, white space separates words.
        ("ab a b", "a\x00b a\x0bb a\ufffdb a\x85b", "ab ab ab ab"),
        ("ab a b", "a\tb a\nb a\u00a0b a\u2003b a\u2028b", " ".join(["a b"] * 5)),
        (" ".join([*MARKS, "a"]), "a".join(MARKS), " a ".join(MARKS)),
    ],
)
def test_words_in_lower_case(make, pieces, text, expected):
    assert cut(make("word", pieces.split()), text) == expected.split()


def test_cased_keeps_case_and_accents(make):
    tokenizer = make("word", ["HeLLo", "H\u00e9llo", "!"], lowercase=False)
    assert cut(tokenizer, "HeLLo!H\u00e9llo hello") == ["HeLLo", "!", "H\u00e9llo", "[UNK]"]


def test_a_word_of_more_than_a_hundred_characters_is_unknown(make):
    tokenizer = make("wordpiece", ["a", "##a"])
    assert len(tokenizer.encode_batch(["a" * 100])[0]) == 100
    assert tokenizer.encode_batch(["a" * 101 + " a"])[0].tolist() == [1, 5]


def test_decode_inserts_no_space_between_thai_words(make):
    tokenizer = make("word", ["การ", "ตัด", "คำ", "aws"], segmenter="thai", strip=False)
    assert tokenizer.decode(tokenizer.encode_batch(["การตัดคำ aws"])[0]) == "การตัดคำ aws"
