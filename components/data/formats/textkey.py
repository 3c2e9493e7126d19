"""Normalised keys by which short texts are compared."""

import hashlib
import unicodedata
from collections.abc import Sequence
from typing import Final

#: Invisible characters that are not in category Cf: the combining grapheme joiner, fillers and inherent vowels, and
#: variation selectors (Default_Ignorable_Code_Point of Unicode).
_INVISIBLE: Final = frozenset(
    (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10))
) | frozenset(range(0xE0100, 0xE01F0))


class _Words(dict[int, int]):
    """Letters, marks (vowels of Thai and Hindi) and numbers to themselves, other characters to a space."""

    def __missing__(self, code: int) -> int:
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else 0x20
        return self[code]


class _Visible(dict[int, int | None]):
    """Invisible characters to nothing, also joiners of Persian and Indic scripts and of emoji."""

    def __missing__(self, code: int) -> int | None:
        invisible = code in _INVISIBLE or unicodedata.category(chr(code)) == "Cf"
        self[code] = None if invisible else code
        return self[code]


_WORDS, _VISIBLE = _Words(), _Visible()


def text_key(text: str) -> str:
    """The text in NFC, without case, punctuation and invisible characters, and with single spaces; texts with equal
    keys count as duplicates.

    The key of a text without words (`:-)`, an emoji) is its visible text, and the key of an invisible text is the text.
    """
    if text.isascii():
        # Nothing to normalise, and no invisible character of category Cf.
        folded = text.lower()
    else:
        visible = unicodedata.normalize("NFD", text.translate(_VISIBLE))
        folded = unicodedata.normalize("NFC", visible.casefold())
    return " ".join(folded.translate(_WORDS).split()) or folded.strip() or text.strip()


def row_key(fields: Sequence[str]) -> str:
    """Key of an input: the keys of its parts."""
    return "\x1f".join(map(text_key, fields))


def digest_of(fields: Sequence[str]) -> bytes:
    """Digest of an input; the same for inputs with equal keys."""
    return hashlib.blake2b(row_key(fields).encode("utf-8", "surrogatepass"), digest_size=16).digest()
