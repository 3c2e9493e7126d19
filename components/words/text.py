"""Words of a text, and their TF-IDF weights."""

from __future__ import annotations

import re
from typing import Any, Final

from sklearn.feature_extraction.text import TfidfVectorizer

from components.tokenization.segmenters import Segmentation

#: A word: letters, digits, and Thai vowel and tone marks, which are not letters in Unicode.
WORD: Final = r"[\w\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]+"
_SEGMENTATION = Segmentation("auto")


def tfidf(**settings: Any) -> TfidfVectorizer:
    """TF-IDF with term frequency 1 + log(tf) over words; languages without spaces are segmented first."""
    return TfidfVectorizer(preprocessor=spaced, sublinear_tf=True, **{"token_pattern": WORD, **settings})


def spaced(text: str) -> str:
    """Lower-case text with spaces between words. A text without words (`:-)`, an emoji) becomes one word per character:
    its code point."""
    found = _SEGMENTATION.spaced(text).lower()
    if re.search(WORD, found):
        return found
    return " ".join(f"u{ord(character):x}" for character in found if not character.isspace())
