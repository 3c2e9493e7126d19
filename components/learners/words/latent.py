"""Dense vectors of texts from their words, fitted on texts without labels.

`LatentSemantics` (Deerwester et al. 1990): TF-IDF vectors projected on the first right singular vectors. `WordMeans`:
the mean of the vectors of a text's words, weighted by a / (a + p(w)) (Arora et al. 2017, "A simple but tough-to-beat
baseline for sentence embeddings"), less the mean over all texts. The vectors are the singular vectors of positive
pointwise mutual information within a window, times the square root of the singular values (Levy et al. 2015, "Improving
distributional similarity with lessons learned from word embeddings").

Shapes: N texts, V terms or words, D dimensions. All vectors of texts have norm 1, or 0 without known words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.learners.words.text import Counted, Tfidf, split_words

#: Candidates for the L2 penalty of a regression on these vectors.
PENALTIES: Final = (0.03, 0.1, 0.3)
#: Maximum number of terms and of words.
MOST_TERMS, MOST_WORDS = 100_000, 10_000
#: Minimum number of texts with a term, and of occurrences of a word; 2 in small collections.
LEAST: Final = 5
#: Texts from which `LEAST` applies.
MANY: Final = 5_000
#: Words on each side that are counted, with weight 1 / distance.
WINDOW: Final = 5
#: a of the weight a / (a + p(w)).
SMOOTHING: Final = 1e-3
#: Exponent of the frequencies of context words.
CONTEXT: Final = 0.75
#: Texts whose words are counted at once.
_BLOCK = 4_000
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class LatentSemantics:
    """TF-IDF vectors of words and word pairs, projected.

    Attributes:
        vectorizer: fitted.
        components: (D, V).
    """

    vectorizer: Tfidf
    components: Vectors

    @classmethod
    def fit(cls, texts: Sequence[str], *, dimensions: int) -> LatentSemantics:
        """The projection on at most `dimensions` singular vectors of the texts' matrix."""
        fit = partial(Counted(texts, ngrams=(1, 2)).fit, texts, dtype=np.float32)
        vectorizer, matrix = fit(least=_least(texts), most=MOST_TERMS)
        if not vectorizer.terms:  # no term is in enough texts
            vectorizer, matrix = fit()
        # Other texts are read than these.
        return cls(replace(vectorizer, counted=None), _svd(matrix, dimensions)[1])

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `load` reads: JSON, and arrays by name."""
        arrays = {"idf": self.vectorizer.idf, "components": np.ascontiguousarray(self.components)}
        return {"terms": list(self.vectorizer.terms)}, arrays

    @classmethod
    def load(cls, described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> LatentSemantics:
        """What `dump` has described.

        Raises:
            ValueError, KeyError, TypeError: they do not fit each other.
        """
        terms = described["terms"]
        vectorizer = Tfidf.of(terms, arrays["idf"], "word", (1, 2))
        if arrays["components"].shape[1] != len(terms):
            raise ValueError(f"{arrays['components'].shape[1]} columns for {len(terms)} terms")
        return cls(vectorizer, arrays["components"])

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """The (N, D) vectors of N texts."""
        return unit(np.asarray(self.vectorizer.matrix(texts) @ self.components.T, dtype=np.float32))


@dataclass(frozen=True)
class WordMeans:
    """Weighted means of word vectors.

    Attributes:
        words: V words, the most frequent first.
        table: (V, D) vectors, times the words' weights.
        centre: (D,) mean over the texts.
    """

    words: list[str]
    table: Vectors
    centre: Vectors

    @classmethod
    def fit(cls, texts: Sequence[str], *, dimensions: int) -> WordMeans:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(split_words(text))
        least = _least(texts)
        # `most_common` orders ties by first occurrence.
        words = [word for word, count in counts.most_common(MOST_WORDS) if count >= least] or list(counts)
        present = {word: index for index, word in enumerate(words)}
        table = _word_vectors(_ids(texts, present), len(words), dimensions=dimensions)
        share = np.asarray([counts[word] for word in words], dtype=np.float64)
        share /= share.sum()
        weighted = (table * (SMOOTHING / (SMOOTHING + share))[:, None]).astype(np.float32)
        result = cls(words, weighted, np.zeros(weighted.shape[1], dtype=np.float32))
        return cls(words, weighted, result._means(texts).mean(axis=0))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """The (N, D) vectors of N texts."""
        means = self._means(texts)
        present = np.abs(means).sum(axis=1, keepdims=True) > 0
        return unit(np.where(present, means - self.centre, 0).astype(np.float32))

    def ids(self, text: str) -> NDArray[np.int64]:
        """The words of a text by index; -1 for unknown words."""
        return next(_ids([text], self._known))

    @cached_property
    def _known(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words)}

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"words": self.words}, {"table": np.ascontiguousarray(self.table), "centre": self.centre}

    @classmethod
    def load(cls, described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> WordMeans:
        """What `dump` has described.

        Raises:
            ValueError, KeyError, TypeError: they do not fit each other.
        """
        if len(described["words"]) != len(arrays["table"]):
            raise ValueError(f"{len(arrays['table'])} vectors for {len(described['words'])} words")
        return cls([str(word) for word in described["words"]], arrays["table"], arrays["centre"])

    def _means(self, texts: Sequence[str]) -> Vectors:
        means = np.zeros((len(texts), self.table.shape[1]), dtype=np.float32)
        for row, ids in enumerate(_ids(texts, self._known)):
            present = np.unique(ids[ids >= 0])
            if len(present):
                means[row] = self.table[present].mean(axis=0)
        return means


def dimensions_of(labels: int) -> tuple[int, int]:
    """Dimensions of `LatentSemantics`, at least twice as many as the labels, and of `WordMeans`."""
    return max(50, 2 * labels), 100


def unit(vectors: Vectors) -> Vectors:
    """(N, D) vectors with norm 1; vectors of norm 0 as they are."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1), dtype=np.float32)


def _least(texts: Sequence[str]) -> int:
    return LEAST if len(texts) >= MANY else 2


def _ids(texts: Sequence[str], present: Mapping[str, int]) -> Iterator[NDArray[np.int64]]:
    """The words of each text by index; -1 for unknown words."""
    for text in texts:
        yield np.fromiter((present.get(word, -1) for word in split_words(text)), dtype=np.int64)


def _word_vectors(texts: Iterator[NDArray[np.int64]], size: int, *, dimensions: int) -> Vectors:
    """(V, D) vectors of positive pointwise mutual information."""
    counts = sparse.csr_matrix((size, size), dtype=np.float32)
    border = np.full(WINDOW, -1, dtype=np.int64)
    block: list[NDArray[np.int64]] = []

    def add(counts: sparse.csr_matrix) -> sparse.csr_matrix:
        flat = np.concatenate([part for ids in block for part in (ids, border)])
        block.clear()
        lefts, rights, weights = [], [], []
        for distance in range(1, WINDOW + 1):
            left, right = flat[:-distance], flat[distance:]
            both = (left >= 0) & (right >= 0)
            lefts.append(left[both])
            rights.append(right[both])
            weights.append(np.full(int(both.sum()), 1 / distance, dtype=np.float32))
        pairs = np.concatenate(lefts), np.concatenate(rights)
        return counts + sparse.coo_matrix((np.concatenate(weights), pairs), shape=(size, size)).tocsr()

    for ids in texts:
        block.append(ids)
        if len(block) == _BLOCK:
            counts = add(counts)
    if block:
        counts = add(counts)
    counts = (counts + counts.T).tocoo()
    if not counts.nnz:
        return np.zeros((size, 1), dtype=np.float32)
    totals = np.asarray(counts.sum(axis=1)).ravel()
    context = totals**CONTEXT
    context /= context.sum()
    information = np.log(counts.data / (totals[counts.row] * context[counts.col]))
    kept = information > 0
    matrix = sparse.csr_matrix((information[kept], (counts.row[kept], counts.col[kept])), shape=(size, size))
    if not matrix.nnz:
        return np.zeros((size, 1), dtype=np.float32)
    left, _, values = _svd(matrix, dimensions)
    return np.asarray(left * np.sqrt(values), dtype=np.float32)


def _svd(matrix: Any, dimensions: int) -> tuple[Vectors, Vectors, Vectors]:
    """Left (N, D) and right (D, V) singular vectors and the values (D,)."""
    from sklearn.utils.extmath import randomized_svd  # a model that only predicts does not need scikit-learn

    most = max(1, min(dimensions, min(matrix.shape)))
    left, values, right = randomized_svd(matrix, n_components=most, n_iter=2, random_state=0)
    return left.astype(np.float32), right.astype(np.float32), values.astype(np.float32)
