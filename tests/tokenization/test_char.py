"""Characters of any script."""

import pytest

from components.core.errors import DataError
from components.data.segmenters import Segmentation
from components.settings.tokenizer import CharSettings
from components.tokenization.char import train_char

NONE = Segmentation("none")


def test_characters_are_ordered_by_frequency_without_rare_ones():
    tokenizer = train_char(["bab", "aก\n ", "กxb \n"], settings=CharSettings(), segmentation=NONE)
    assert tokenizer.pieces[5:] == ["b", "\n", " ", "a", "ก"]
    assert tokenizer.encode_batch(["abx\n"])[0].tolist() == [8, 5, 1, 6]


@pytest.mark.parametrize("text", ["กำลัง ก็ได้", "e\u0301 👩‍👩‍👧 🇹🇭 ❤️", "a\tb\n\n c\u00a0", "中文 العربية"])
def test_text_of_known_characters_round_trips(text):
    tokenizer = train_char([text, text], settings=CharSettings(), segmentation=NONE)
    ids, spans = tokenizer.encode_with_offsets(text)
    assert tokenizer.decode(ids) == text
    assert [text[start:end] for start, end in spans] == list(text)


def test_no_character_is_frequent_enough():
    with pytest.raises(DataError, match=r"tokenizer.char: no character of the corpus occurs 2 times .* add text"):
        train_char(["abc"], settings=CharSettings(), segmentation=NONE)


def test_max_vocabulary_counts_the_special_pieces():
    tokenizer = train_char(["aaabbcc"], settings=CharSettings(max_vocabulary=7), segmentation=NONE)
    assert tokenizer.pieces[5:] == ["a", "b"]


def test_unknown_and_omitted_pieces(make):
    tokenizer = make("char", ["a"])
    assert tokenizer.encode_batch(["aza\ud800"])[0].tolist() == [5, 1, 5, 1]
    assert tokenizer.decode([2, 5, 1, 5, 3, 0]) == "a\ufffda"
