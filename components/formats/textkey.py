"""When two short texts count as the same."""

from __future__ import annotations

import unicodedata


class _Words(dict[int, int]):
    """Code points to themselves if words consist of them (letters, marks, numbers), else to a space; filled as asked.

    Marks count: the vowels of Thai and Hindi are marks, so that two words may differ in nothing else.
    """

    def __missing__(self, code: int) -> int:
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else 0x20
        return self[code]


_WORDS = _Words()


def text_key(text: str) -> str:
    """The text without case, punctuation and white space; equal keys mean the same text for splits and exclusions.

    A text without words (`:-)`, an emoji) is its own key.
    """
    return " ".join(text.casefold().translate(_WORDS).split()) or text.strip()
