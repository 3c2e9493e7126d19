"""Words of a text, and TF-IDF vectors of texts, equal to those of scikit-learn's TfidfVectorizer, whose import takes
longer than a prediction. Shapes: N texts, V terms."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.data.formats.words import words
from components.data.segmenters import Segmentation

#: Words and their n-grams, or n-grams of characters within words with a space on each side.
Analyzer = Literal["word", "char_wb"]
_SEGMENTATION = Segmentation("auto")


@dataclass(frozen=True)
class Tfidf:
    """Vectors of norm 1 with (1 + log tf) idf for each term of a text, idf = 1 + log((1 + N) / (1 + df)) (Salton and
    Buckley 1988; as TfidfVectorizer with sublinear_tf).

    Attributes:
        vocabulary: term -> column.
        idf: (V,).
        ngrams: smallest and largest number of words or characters of a term.
    """

    vocabulary: Mapping[str, int]
    idf: NDArray[Any]
    analyzer: Analyzer = "word"
    ngrams: tuple[int, int] = (1, 1)

    @classmethod
    def fit(cls, texts: Sequence[str], **settings: Any) -> Self:
        """The terms of the texts, and their inverse document frequencies; arguments as of `fit_matrix`."""
        return cls.fit_matrix(texts, **settings)[0]

    @classmethod
    def fit_matrix(
        cls,
        texts: Sequence[str],
        *,
        analyzer: Analyzer = "word",
        ngrams: tuple[int, int] = (1, 1),
        least: int = 1,
        most: int | None = None,
        dtype: type[np.floating] = np.float64,
    ) -> tuple[Self, sparse.csr_matrix]:
        """The terms of at least `least` texts, at most the `most` frequent, in alphabetical order with their inverse
        document frequencies, and `matrix(texts)`."""
        numbers: defaultdict[str, int] = defaultdict()
        numbers.default_factory = numbers.__len__
        split = terms_of(analyzer, ngrams)
        counts = _counts(texts, lambda text: map(numbers.__getitem__, split(text)))
        frequencies = np.bincount(counts.columns, minlength=len(numbers))
        terms = sorted(numbers)
        order = np.fromiter((numbers[term] for term in terms), dtype=np.int64, count=len(terms))
        kept = np.flatnonzero(frequencies[order] >= least)
        if most is not None and len(kept) > most:
            totals = np.bincount(counts.columns, weights=counts.values, minlength=len(numbers))[order[kept]]
            kept = kept[np.sort(np.argsort(-totals, kind="stable")[:most])]
        shares = (1 + len(texts)) / (1 + frequencies[order[kept]])
        vocabulary = {terms[number]: column for column, number in enumerate(kept)}
        result = cls(vocabulary, (np.log(shares) + 1).astype(dtype), analyzer, ngrams)
        return result, result._weighted(counts.renumbered(order[kept], size=len(numbers)))

    @classmethod
    def of(cls, terms: Sequence[str], idf: NDArray[Any], analyzer: Analyzer, ngrams: tuple[int, int]) -> Self:
        """Vectors of these terms, in the order of their columns. Raises ValueError: `idf` has another length."""
        vocabulary = {term: column for column, term in enumerate(terms)}
        if len(vocabulary) != len(idf):
            raise ValueError(f"{len(idf)} frequencies for {len(vocabulary)} terms")
        return cls(vocabulary, idf, analyzer, ngrams)

    @property
    def terms(self) -> list[str]:
        return sorted(self.vocabulary, key=self.vocabulary.__getitem__)

    def matrix(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """(N, V). A row does not depend on the others."""
        terms, column = terms_of(self.analyzer, self.ngrams), self.vocabulary.get
        return self._weighted(_counts(texts, lambda text: (column(term) for term in terms(text))))

    def _weighted(self, counts: Counts) -> sparse.csr_matrix:
        rows = counts.rows
        values = (np.log(counts.values.astype(self.idf.dtype)) + 1) * self.idf[counts.columns]
        # The values of a row are added one after the other, whatever the other rows are.
        norms = np.sqrt(np.bincount(rows, weights=values.astype(np.float64) ** 2, minlength=len(counts.ends) - 1))
        values /= norms[rows]
        shape = (len(counts.ends) - 1, len(self.vocabulary))
        return sparse.csr_matrix((values, counts.columns, counts.ends), shape)


def split_words(text: str) -> list[str]:
    return words(spaced(text))


def spaced(text: str) -> str:
    """Lower-case NFC text with spaces between Thai words; a text without words (`:-)`) becomes its code points."""
    result = _SEGMENTATION.spaced(unicodedata.normalize("NFC", text)).lower()
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


class Counts(NamedTuple):
    """The columns of each text's terms, ascending, and how often they occur, from `ends[i]` to `ends[i + 1]`."""

    columns: NDArray[np.int64]
    values: NDArray[np.int64]
    ends: NDArray[np.int64]

    @property
    def rows(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.ends) - 1), np.diff(self.ends))

    def renumbered(self, columns: NDArray[np.int64], *, size: int) -> Counts:
        """The counts of these columns of `size`, in this order."""
        position = np.full(size, -1)
        position[columns] = np.arange(len(columns))
        new, rows = position[self.columns], self.rows
        kept = np.flatnonzero(new >= 0)
        kept = kept[np.lexsort((new[kept], rows[kept]))]
        lengths = np.bincount(rows[kept], minlength=len(self.ends) - 1)
        return Counts(new[kept], self.values[kept], np.concatenate([[0], np.cumsum(lengths)]))


def _counts(texts: Sequence[str], columns: Callable[[str], Iterable[Any]]) -> Counts:
    """Counts of the terms of N texts; terms without a column are left out."""
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
    return Counts(*(np.asarray(each, dtype=np.int64) for each in (indices, values, ends)))
