"""BERT's word splitting and WordPiece: exact values like google-research/bert tokenization_test.py."""

import pytest


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
