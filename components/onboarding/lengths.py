"""How many pieces of a text are read (`finetune.<name>.max_length`), from the lengths of the texts in characters."""

from __future__ import annotations

from typing import Final

from components.words.systems import UNSPACED

#: Lengths in pieces, of which the least is used that fits nearly all texts.
LENGTHS: Final = (64, 128, 256)
#: Share of the texts that are not cut.
WHOLE: Final = 0.95
#: Characters per piece at least. In languages without spaces, pieces of a vocabulary of another language are single
#: characters.
CHARACTERS, CHARACTERS_UNSPACED = 3.5, 1.2
#: Special pieces of a text or a pair of texts.
_SPECIAL: Final = 4


def length_for(characters: float, *, language: str) -> int:
    """The smallest of `LENGTHS` that fits texts of so many characters; otherwise the largest."""
    pieces = characters / (CHARACTERS_UNSPACED if language in UNSPACED else CHARACTERS) + _SPECIAL
    return next((length for length in LENGTHS if pieces <= length), LENGTHS[-1])
