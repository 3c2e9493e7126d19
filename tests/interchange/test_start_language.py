"""Texts whose language an encoder's vocabulary does not hold are named, with the starts that hold it."""

from typing import Any

import pytest

from components.data.segmenters import Segmentation
from components.interchange.starts.language import other_language
from components.tokenization.char import CharTokenizer
from components.tokenization.special import SPECIAL_PIECES, UNK

ADVICE = "; use a start for the language: multilingual-e5-small-q4 (`headstart starts`)"


class Letters:
    """Words of up to five letters are a piece, longer ones a piece for each two letters; others than ASCII unknown."""

    kind = "wordpiece"
    leads_with_space = False

    def encode_batch(self, words: list[str]) -> list[list[int]]:
        return [[UNK] if not word.isascii() else [9] * (1 if len(word) <= 5 else -(-len(word) // 2)) for word in words]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("The hotel was clean, 3 of 5: 20-7-ACB0192837465", ""),
        ("12 34", ""),
        ("", ""),
        ("Krankenversicherung", "10.0 pieces a word, 0% of them unknown" + ADVICE),
        ("good ผมกินข้าวที่บ้าน", "1.0 pieces a word, 80% of them unknown" + ADVICE),
    ],
)
def test_words_in_many_or_unknown_pieces(text, warning):
    tokenizer: Any = Letters()
    expected = warning and f"mini reads these texts as another language: {warning}"
    assert other_language("mini", tokenizer, [text], language="de") == expected


def test_words_of_a_character_vocabulary_have_many_pieces_in_every_language():
    tokenizer = CharTokenizer([*SPECIAL_PIECES, *"abcdefghijklmnopqrstuvwxyz"], segmentation=Segmentation("none"))
    assert other_language("flair", tokenizer, ["several brown foxes"], language="en") == ""
    assert "100% of them unknown" in other_language("flair", tokenizer, ["ไทย"], language="th")


def test_a_multilingual_start_does_not_name_itself():
    tokenizer: Any = Letters()
    actual = other_language("multilingual-e5-small-q4", tokenizer, ["ไทย"], language="th")
    assert actual.endswith("100% of them unknown")
