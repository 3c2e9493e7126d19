"""Words of a text, and their TF-IDF weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from components.tokenization.segmenters import Segmentation

#: A word: letters, digits, and Thai vowel and tone marks, which are not letters in Unicode.
WORD: Final = r"[\w\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]+"
_SEGMENTATION = Segmentation("auto")


def tfidf(**settings: Any) -> TfidfVectorizer:
    """TF-IDF with term frequency 1 + log(tf) over words; languages without spaces are segmented first."""
    return TfidfVectorizer(preprocessor=spaced, sublinear_tf=True, **{"token_pattern": WORD, **settings})


def fitted_tfidf(terms: Sequence[str], idf: NDArray[np.float64], **settings: Any) -> TfidfVectorizer:
    """The vectorizer with these terms, in the order of their columns, and these inverse document frequencies."""
    vectorizer = tfidf(vocabulary={term: number for number, term in enumerate(terms)}, **settings)
    vectorizer.idf_ = idf
    return vectorizer


def terms_of(vectorizer: TfidfVectorizer) -> list[str]:
    """The terms of a fitted vectorizer in the order of their columns."""
    return sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)


def spaced(text: str) -> str:
    """Lower-case text with spaces between words. A text without words (`:-)`, an emoji) becomes one word per character:
    its code point."""
    found = _SEGMENTATION.spaced(text).lower()
    if re.search(WORD, found):
        return found
    return " ".join(f"u{ord(character):x}" for character in found if not character.isspace())
