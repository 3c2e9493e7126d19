"""Words of a text, TF-IDF vectors of texts, equal to those of scikit-learn's TfidfVectorizer, whose import takes longer
than a prediction, and TF-IDF features of a row: of one text, or of a pair of texts.

Shapes: N texts or rows, V terms, F features.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.data.formats.words import words
from components.data.segmenters import Segmentation
from components.data.tasks.data import Fields

#: Words and their n-grams, or n-grams of characters within words with a space on each side.
Analyzer = Literal["word", "char_wb"]
_SEGMENTATION = Segmentation("auto")
_VARIATIONS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")


@dataclass(frozen=True)
class Tfidf:
    """Vectors of norm 1 with (1 + log tf) idf for each term of a text, idf = 1 + log((1 + N) / (1 + df)) (Salton and
    Buckley 1988; as TfidfVectorizer with sublinear_tf).

    Attributes:
        terms: V terms, in the order of their columns.
        idf: (V,).
        ngrams: smallest and largest number of words or characters of a term.
        counted: texts that are not split again, and the number of each column in their counts.
    """

    terms: Sequence[str]
    idf: NDArray[Any]
    analyzer: Analyzer = "word"
    ngrams: tuple[int, int] = (1, 1)
    counted: tuple[Counted, NDArray[np.int64]] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.terms) != len(self.idf):
            raise ValueError(f"{len(self.idf)} frequencies for {len(self.terms)} terms")

    @cached_property
    def vocabulary(self) -> Mapping[str, int]:
        """Term -> column."""
        return {term: column for column, term in enumerate(self.terms)}

    def matrix(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """(N, V). A row does not depend on the others."""
        counts = None if self.counted is None else self.counted[0].of(texts)
        if self.counted is None or counts is None:
            terms, column = terms_of(self.analyzer, self.ngrams), self.vocabulary.get
            counts = counts_of(texts, lambda text: (column(term) for term in terms(text)), len(self.idf))
        else:
            counts = counts[:, self.counted[1]]
        return weighted(counts, self.idf)


class Counted:
    """The counts of all terms of some texts, each of which is split once; a fold takes its rows and its terms.

    Attributes:
        terms: (V,) in alphabetical order.
    """

    def __init__(self, texts: Iterable[str], analyzer: Analyzer = "word", ngrams: tuple[int, int] = (1, 1)) -> None:
        self.analyzer, self.ngrams = analyzer, ngrams
        self._row = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        numbers: defaultdict[str, int] = defaultdict()
        numbers.default_factory = numbers.__len__
        split = terms_of(analyzer, ngrams)
        counts = counts_of(self._row, lambda text: map(numbers.__getitem__, split(text)), None)
        self.terms = np.asarray(sorted(numbers), dtype=object)
        self._counts = counts[:, np.fromiter(map(numbers.__getitem__, self.terms), np.int64, len(numbers))]
        self._counts.sort_indices()

    def of(self, texts: Sequence[str]) -> sparse.csr_matrix | None:
        """The (N, V) counts of N texts; None if some were not counted."""
        rows = [self._row.get(text, -1) for text in texts]
        return None if -1 in rows else self._counts[rows]

    def fit(self, texts: Sequence[str], *, least: int = 1, most: int | None = None, dtype: Any = np.float64) -> Tfidf:
        """The terms of at least `least` of N texts, which were counted, at most the `most` frequent, in alphabetical
        order with their inverse document frequencies."""
        counts = self.of(texts)
        assert counts is not None
        frequencies = np.bincount(counts.indices, minlength=len(self.terms))
        kept = np.flatnonzero(frequencies >= least)
        if most is not None and len(kept) > most:
            totals = np.bincount(counts.indices, weights=counts.data, minlength=len(self.terms))[kept]
            kept = kept[np.sort(np.argsort(-totals, kind="stable")[:most])]
        idf = idf_of(frequencies[kept], len(texts), dtype)
        return Tfidf(self.terms[kept].tolist(), idf, self.analyzer, self.ngrams, (self, kept))


def idf_of(frequencies: NDArray[np.int64], texts: int, dtype: Any = np.float32) -> NDArray[Any]:
    """Inverse document frequencies of terms that so many of the texts have, as of `Tfidf`."""
    return (np.log((1 + texts) / (1 + frequencies)) + 1).astype(dtype)


def weighted(counts: sparse.csr_matrix, idf: NDArray[Any]) -> sparse.csr_matrix:
    """(N, V) vectors of norm 1, or 0, from the counts of terms and their inverse document frequencies (V,)."""
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    values = (np.log(counts.data.astype(idf.dtype)) + 1) * idf[counts.indices]
    # The values of a row are added one after the other, whatever the other rows are.
    norms = np.sqrt(np.bincount(rows, weights=values.astype(np.float64) ** 2, minlength=counts.shape[0]))
    values /= norms[rows]
    return sparse.csr_matrix((values, counts.indices, counts.indptr), counts.shape)


def split_words(text: str) -> list[str]:
    return words(spaced(text))


def spaced(text: str) -> str:
    """Lower-case NFC text with spaces between Thai words, without variation selectors, so that an emoji is the same
    word with one and without; a text without words (`:-)`) becomes its code points."""
    plain = unicodedata.normalize("NFC", text if text.isascii() else _VARIATIONS.sub("", text))
    result = _SEGMENTATION.spaced(plain).lower()
    if words(result):
        return result
    return " ".join(f"u{ord(character):x}" for character in result if not character.isspace())


def terms_of(analyzer: Analyzer, ngrams: tuple[int, int]) -> Callable[[str], Iterable[str]]:
    """The function from a text to its terms: words, or n-grams of characters, of `low` to `high`."""
    low, high = ngrams
    if analyzer == "word":
        if high == 1:
            return split_words
        return lambda text: _ngrams_of_words(split_words(text), low, high)
    return lambda text: chain.from_iterable(_ngrams_within(f" {word} ", low, high) for word in spaced(text).split())


def _ngrams_of_words(tokens: Sequence[str], low: int, high: int) -> Iterable[str]:
    for size in range(low, high + 1):
        yield from map(" ".join, zip(*(tokens[start:] for start in range(size)), strict=False))


def _ngrams_within(word: str, low: int, high: int) -> Iterable[str]:
    for size in range(low, high + 1):
        yield from (word[start : start + size] for start in range(max(1, len(word) - size + 1)))
        if len(word) <= size:
            return


def counts_of(texts: Iterable[str], columns: Callable[[str], Iterable[Any]], size: int | None) -> sparse.csr_matrix:
    """(N, `size`) counts of the terms of N texts; None: as many columns as there are. Terms without one are left
    out."""
    indices: list[int] = []
    values: list[int] = []
    ends = [0]
    for text in texts:
        counted = Counter(columns(text))
        counted.pop(None, None)
        pairs = sorted(counted.items())
        indices.extend(column for column, _ in pairs)
        values.extend(number for _, number in pairs)
        ends.append(len(indices))
    shape = (len(ends) - 1, max(indices, default=-1) + 1 if size is None else size)
    return sparse.csr_matrix((np.asarray(values, np.int32), np.asarray(indices, np.int32), ends), shape)


#: `text`: the TF-IDF vectors of the first text, of all vectorizers side by side. `cosine`: the cosine of both texts.
#: `pair`: the vectors u and v of both texts, |u - v|, u v and their cosine.
Form = Literal["text", "cosine", "pair"]
#: Analyzer, and smallest and largest number of words or characters of a term.
Terms = tuple[Analyzer, tuple[int, int]]
WORDS: Final[Sequence[Terms]] = (("word", (1, 1)),)
#: Files of features: their description, and their arrays.
DESCRIPTION: Final = "words.json"
WEIGHTS: Final = "words.safetensors"


@dataclass(frozen=True)
class WordFeatures:
    """The features of a words model: fitted vectorizers, the first on words; the forms `cosine` and `pair` have one."""

    form: Form
    vectorizers: tuple[Tfidf, ...]

    @classmethod
    def fit(
        cls,
        rows: Sequence[Fields],
        *,
        form: Form = "text",
        terms: Sequence[Terms] = WORDS,
        count: Callable[[Analyzer, tuple[int, int]], Counted] | None = None,
    ) -> WordFeatures:
        """With the vocabulary of `rows`. `count`: the counts of their texts and others."""
        texts = [text for parts in rows for text in parts]
        count = count or partial(Counted, texts)
        return cls(form, tuple(count(*each).fit(texts) for each in terms))

    @property
    def vocabulary(self) -> int:
        return sum(len(vectorizer.terms) for vectorizer in self.vectorizers)

    @property
    def width(self) -> int:
        return {"text": self.vocabulary, "cosine": 1, "pair": 4 * self.vocabulary + 1}[self.form]

    def matrix(self, rows: Sequence[Fields]) -> Any:
        """(N, F), sparse; dense for `cosine`. A row does not depend on the others."""
        if not rows:
            return sparse.csr_matrix((0, self.width))
        if self.form == "text":
            texts = [row[0] for row in rows]
            parts = [vectorizer.matrix(texts) for vectorizer in self.vectorizers]
            return parts[0] if len(parts) == 1 else sparse.hstack(parts, format="csr")
        first, second = (self.vectorizers[0].matrix([row[part] for row in rows]) for part in (0, 1))
        same = cosines(first, second)[:, None]
        if self.form == "cosine":
            return same
        parts = [first, second, abs(first - second), first.multiply(second), sparse.csr_matrix(same)]
        return sparse.hstack(parts, format="csr")

    def coverage(self, row: Fields) -> tuple[int, int]:
        """Number of words of the row's texts, and how many of them the first vectorizer does not have."""
        result = [word for text in (row[:1] if self.form == "text" else row[:2]) for word in split_words(text)]
        return len(result), sum(word not in self.vectorizers[0].vocabulary for word in result)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
        """What `load` reads: JSON, and arrays by name."""
        described = [
            {"analyzer": vectorizer.analyzer, "ngram_range": vectorizer.ngrams, "terms": list(vectorizer.terms)}
            for vectorizer in self.vectorizers
        ]
        arrays = {f"idf.{index}": vectorizer.idf for index, vectorizer in enumerate(self.vectorizers)}
        return {"form": self.form, "vectorizers": described}, arrays

    @classmethod
    def load(cls, described: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float64]]) -> WordFeatures:
        """What `dump` has described. Raises ValueError, KeyError, TypeError: the parts do not fit each other."""
        if described["form"] not in get_args(Form):
            raise ValueError(f"unknown features {described['form']!r}")
        result = (
            Tfidf(stored["terms"], arrays[f"idf.{index}"], stored["analyzer"], tuple(stored["ngram_range"]))
            for index, stored in enumerate(described["vectorizers"])
        )
        return cls(described["form"], tuple(result))


def cosines(first: sparse.csr_matrix, second: sparse.csr_matrix) -> NDArray[np.float64]:
    """(N,) cosines of the rows of two (N, V) matrices with rows of norm 1 or 0."""
    return np.asarray(first.multiply(second).sum(1)).ravel()
