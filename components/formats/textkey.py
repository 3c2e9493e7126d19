"""Normalised keys by which short texts are compared."""

from __future__ import annotations

import unicodedata


class _Words(dict[int, int]):
    """Translation table: letters, marks and numbers to themselves, other characters to a space; filled on demand.

    Marks are kept: vowels of Thai and Hindi are marks, and two words may differ in nothing else.
    """

    def __missing__(self, code: int) -> int:
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else 0x20
        return self[code]


_WORDS = _Words()


def text_key(text: str) -> str:
    """The text without case and punctuation and with single spaces; texts with equal keys count as duplicates.

    The key of a text without words (`:-)`, an emoji) is the text itself.
    """
    return " ".join(text.casefold().translate(_WORDS).split()) or text.strip()
