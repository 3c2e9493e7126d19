"""Words of a text, and their TF-IDF weights."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from components.data.formats.words import words
from components.data.segmenters import Segmentation

_SEGMENTATION = Segmentation("auto")


def tfidf(**settings: Any) -> TfidfVectorizer:
    """TF-IDF with term frequency 1 + log(tf) over words; Thai is segmented first."""
    of_words = {} if settings.get("analyzer") == "char_wb" else {"tokenizer": words}
    return TfidfVectorizer(preprocessor=spaced, token_pattern=None, sublinear_tf=True, **of_words, **settings)


def fitted_tfidf(terms: Sequence[str], idf: NDArray[np.float64], **settings: Any) -> TfidfVectorizer:
    """The vectorizer with these terms, in the order of their columns, and these inverse document frequencies."""
    vectorizer = tfidf(vocabulary={term: number for number, term in enumerate(terms)}, **settings)
    vectorizer.idf_ = idf
    return vectorizer


def terms_of(vectorizer: TfidfVectorizer) -> list[str]:
    """The terms of a fitted vectorizer in the order of their columns."""
    return sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)


def spaced(text: str) -> str:
    """Lower-case text in NFC with spaces between words of Thai. A text without words (`:-)`, an emoji) becomes one word
    per character: its code point."""
    result = _SEGMENTATION.spaced(unicodedata.normalize("NFC", text)).lower()
    if words(result):
        return result
    return " ".join(f"u{ord(character):x}" for character in result if not character.isspace())
