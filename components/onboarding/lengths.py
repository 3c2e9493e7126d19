"""Pieces of a text, estimated from its characters, before there is a tokenizer."""

from __future__ import annotations

from typing import Final

from components.words.systems import UNSPACED

#: Characters per piece at least. In languages without spaces, pieces of a vocabulary of another language are single
#: characters.
CHARACTERS, CHARACTERS_UNSPACED = 3.5, 1.2
#: Special pieces of a text or a pair of texts.
_SPECIAL: Final = 4


def estimated_pieces(characters: float, *, language: str) -> int:
    """Pieces of a text of so many characters."""
    return int(characters / (CHARACTERS_UNSPACED if language in UNSPACED else CHARACTERS)) + _SPECIAL
