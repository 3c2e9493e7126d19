"""Spelling tables of words, and words of a text of characters."""

import torch

from components.models.elmo import (
    BEGIN,
    CHARACTERS,
    FINISH,
    FIRST_SPECIAL,
    PADDING,
    WORD_CHARACTERS,
    spell,
    spelling_table,
)
from components.models.layers.text_words import LONGEST, TextWords, packed
from components.tokenization.special import END, MASK, PAD, SPECIAL_PIECES, UNK


def test_words_are_bytes_between_begin_and_end():
    cat, thai = spell(["cat", "ก"]).tolist()
    assert cat == [BEGIN, 99, 97, 116, FINISH] + [PADDING] * 45
    assert thai == [BEGIN, 0xE0, 0xB8, 0x81, FINISH] + [PADDING] * 45


def test_long_words_are_truncated():
    whole, cut = spell(["x" * 48, "x" * 49]).tolist()
    assert whole == cut == [BEGIN, *[120] * 48, FINISH]


def test_special_pieces_are_characters_of_their_own():
    table = spelling_table([*SPECIAL_PIECES, "[", "cat"])
    assert table.shape == (7, WORD_CHARACTERS) and table.dtype == torch.int16
    assert table[PAD, :4].tolist() == [BEGIN, FIRST_SPECIAL, FINISH, PADDING]
    assert table[MASK, :4].tolist() == [BEGIN, CHARACTERS - 1, FINISH, PADDING]
    assert table[5, :4].tolist() == [BEGIN, ord("["), FINISH, PADDING]
    assert torch.equal(table[6:], spell(["cat"]))


WORDS = ["the", "end", ".", "n't", "café", "U.S."]
PIECES = [*SPECIAL_PIECES, *"thend .caféUS'Tx"]


def ids(text: str) -> list[int]:
    return [PIECES.index(character) if character in PIECES else UNK for character in text]


def test_words_are_packed_as_bytes():
    table = packed(["a", "é"])
    assert table.dtype == torch.uint8 and table.shape == (2, LONGEST)
    assert table[:, :3].tolist() == [[97, 0, 0], [0xC3, 0xA9, 0]] and not table[:, 3:].any()


def test_each_character_has_the_row_of_its_word():
    """A run of characters as written, in lower case, or its words and marks."""
    words = TextWords(torch.cat([packed(WORDS), packed([""])]), PIECES)
    assert words.rows([END, *ids("The end."), END]).tolist() == [-1, 0, 0, 0, -1, 1, 1, 1, 2, -1]
    assert words.rows(ids("U.S. n't")).tolist() == [5] * 4 + [-1] + [3] * 3
    assert words.rows(ids("café xx")).tolist() == [4] * 4 + [-1] * 3
    assert words.rows(ids("the?end")).tolist() == [0, 0, 0, -1, 1, 1, 1], "a character outside of the vocabulary"
