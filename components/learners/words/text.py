"""Words of a text, and their TF-IDF weights."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils.sparsefuncs_fast import inplace_csr_row_normalize_l2

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


def weights(vectorizer: TfidfVectorizer, texts: Sequence[str]) -> sparse.csr_matrix:
    """(N, terms): what `vectorizer.transform` returns, to the last bit. For one text, that method's checks take ten
    times as long as the counting."""
    analyze, term_index = vectorizer.build_analyzer(), vectorizer.vocabulary_.get
    indices: list[int] = []
    counts: list[int] = []
    ends = [0]
    for text in texts:
        of_text = Counter(map(term_index, analyze(text)))
        of_text.pop(None, None)
        for index in sorted(of_text):
            indices.append(index)
            counts.append(of_text[index])
        ends.append(len(indices))
    columns = np.asarray(indices, dtype=np.int32)
    values = np.log(np.asarray(counts, dtype=vectorizer.dtype)) + 1.0
    values *= vectorizer.idf_[columns]
    shape = (len(texts), len(vectorizer.vocabulary_))
    result = sparse.csr_matrix((values, columns, np.asarray(ends, dtype=np.int32)), shape=shape)
    inplace_csr_row_normalize_l2(result)
    return result


def spaced(text: str) -> str:
    """Lower-case text in NFC with spaces between words of Thai. A text without words (`:-)`, an emoji) becomes one word
    per character: its code point."""
    result = _SEGMENTATION.spaced(unicodedata.normalize("NFC", text)).lower()
    if words(result):
        return result
    return " ".join(f"u{ord(character):x}" for character in result if not character.isspace())
