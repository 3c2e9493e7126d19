"""Words of a text of characters, as rows of a table."""

from __future__ import annotations

import torch

from components.models.layers.text_words import LONGEST, TextWords, packed
from components.tokenization.special import END, SPECIAL_PIECES, UNK

WORDS = ["the", "end", ".", "n't", "café", "U.S."]
PIECES = [*SPECIAL_PIECES, *"thend .caféUS'Tx"]


def ids(text: str) -> list[int]:
    return [PIECES.index(character) if character in PIECES else UNK for character in text]


def test_words_are_packed_as_bytes() -> None:
    table = packed(["a", "é"])
    assert table.dtype == torch.uint8 and table.shape == (2, LONGEST)
    assert table[:, :3].tolist() == [[97, 0, 0], [0xC3, 0xA9, 0]] and not table[:, 3:].any()


def test_each_character_has_the_row_of_its_word() -> None:
    """A run of characters as written, in lower case, or its words and marks."""
    words = TextWords(torch.cat([packed(WORDS), packed([""])]), PIECES)
    assert words.rows([END, *ids("The end."), END]).tolist() == [-1, 0, 0, 0, -1, 1, 1, 1, 2, -1]
    assert words.rows(ids("U.S. n't")).tolist() == [5] * 4 + [-1] + [3] * 3
    assert words.rows(ids("café xx")).tolist() == [4] * 4 + [-1] * 3
    assert words.rows(ids("the?end")).tolist() == [0, 0, 0, -1, 1, 1, 1], "a character outside of the vocabulary"
