"""Dense vectors of texts from their words, fitted on texts without labels.

Latent semantics (Deerwester et al. 1990): TF-IDF vectors of words and word pairs, projected on the first right singular
vectors. Word means: the mean of the vectors of a text's words, weighted by a / (a + p(w)) (Arora et al. 2017, "A simple
but tough-to-beat baseline for sentence embeddings"), less the mean over all texts. The vectors are the singular vectors
of positive pointwise mutual information within a window, times the square root of the singular values (Levy et al.
2015, "Improving distributional similarity with lessons learned from word embeddings").

Shapes: N texts, V terms, W words, D dimensions. All vectors of texts have norm 1, or 0 without known words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.data.tasks.data import Fields
from components.learners.words.features import Counted, Tfidf, counts_of, split_words

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
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class LatentFeatures:
    """Dense features of one text.

    Attributes:
        terms: of the TF-IDF vectors.
        components: (D, V) their projection.
        words: W words, the most frequent first.
        table: (W, D') vectors, times the words' weights.
        centre: (D',) mean over the texts.
    """

    terms: Tfidf
    components: Vectors
    words: list[str]
    table: Vectors
    centre: Vectors
    form: ClassVar[Literal["latent"]] = "latent"

    @classmethod
    def fit(cls, texts: Sequence[str], *, dimensions: tuple[int, int]) -> LatentFeatures:
        """At most `dimensions` of latent semantics and of word means."""
        least = LEAST if len(texts) >= MANY else 2
        counted = Counted(texts, ngrams=(1, 2))
        terms = counted.fit(texts, least=least, most=MOST_TERMS, dtype=np.float32)
        if not terms.terms:  # none is in enough texts
            terms = counted.fit(texts, dtype=np.float32)
        components = _svd(terms.matrix(texts), dimensions[0])[1]
        split = list(map(split_words, texts))
        counts = Counter(chain.from_iterable(split))
        # `most_common` orders ties by first occurrence.
        words = [word for word, count in counts.most_common(MOST_WORDS) if count >= least] or list(counts)
        share = np.asarray([counts[word] for word in words], dtype=np.float64)
        weights = SMOOTHING / (SMOOTHING + share / share.sum())
        table = (_word_vectors(split, words, dimensions[1]) * weights[:, None]).astype(np.float32)
        # Other texts are read than these.
        result = cls(replace(terms, counted=None), components, words, table, np.zeros(table.shape[1], np.float32))
        return replace(result, centre=result._means(texts).mean(axis=0))

    @property
    def vocabulary(self) -> int:
        return len(self.terms.terms) + len(self.words)

    @property
    def width(self) -> int:
        return len(self.components) + len(self.centre)

    def parts(self, texts: Sequence[str]) -> tuple[Vectors, Vectors]:
        """(N, D) and (N, D') vectors of latent semantics and of word means."""
        means = self._means(texts)
        present = np.abs(means).sum(axis=1, keepdims=True) > 0
        centred = np.where(present, means - self.centre, 0)
        return _unit(self.terms.matrix(texts) @ self.components.T), _unit(centred)

    def matrix(self, rows: Sequence[Fields]) -> Any:
        """(N, F). A row does not depend on the others."""
        if not rows:
            return np.zeros((0, self.width))
        return np.concatenate(self.parts([row[0] for row in rows]), axis=1, dtype=np.float64)

    def coverage(self, row: Fields) -> tuple[int, int]:
        """Number of words of the row's text, and how many of them are unknown."""
        words = split_words(row[0])
        return len(words), sum(word not in self._numbers for word in words)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `load` reads: JSON, and arrays by name."""
        described = {"semantics": {"terms": list(self.terms.terms)}, "means": {"words": self.words}}
        arrays = {"idf": self.terms.idf, "components": self.components, "table": self.table, "centre": self.centre}
        return {"form": self.form, **described}, {name: np.ascontiguousarray(each) for name, each in arrays.items()}

    @classmethod
    def load(cls, described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> LatentFeatures:
        """What `dump` has described. Raises ValueError, KeyError, TypeError: the parts do not fit each other."""
        terms, words = described["semantics"]["terms"], described["means"]["words"]
        components, table = arrays["components"], arrays["table"]
        if (components.shape[1], len(table)) != (len(terms), len(words)):
            raise ValueError(f"other numbers of vectors than of the {len(terms)} terms and {len(words)} words")
        return cls(Tfidf(terms, arrays["idf"], "word", (1, 2)), components, words, table, arrays["centre"])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words)}

    def _means(self, texts: Sequence[str]) -> Vectors:
        counts = counts_of(texts, lambda text: map(self._numbers.get, split_words(text)), len(self.words))
        present = (counts > 0).astype(np.float32)
        return np.asarray(present @ self.table / np.maximum(present.sum(axis=1), 1), dtype=np.float32)


def dimensions_of(labels: int) -> tuple[int, int]:
    """Dimensions of latent semantics, at least twice as many as the labels, and of word means."""
    return max(50, 2 * labels), 100


def _unit(vectors: Vectors) -> Vectors:
    """(N, D) vectors with norm 1; vectors of norm 0 as they are."""
    vectors = np.asarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1), dtype=np.float32)


def _word_vectors(texts: Sequence[Sequence[str]], words: Sequence[str], dimensions: int) -> Vectors:
    """(W, D) vectors of positive pointwise mutual information; (W, 1) zeros without any."""
    numbers: dict[str | None, int] = {word: index for index, word in enumerate(words)}
    size = len(words)
    # Unknown words, and those between two texts, are -1.
    ids = (numbers.get(word, -1) for text in texts for word in (*text, *[None] * WINDOW))
    flat = np.fromiter(ids, dtype=np.int32)
    counts = sparse.csr_matrix((size, size), dtype=np.float32)
    for distance in range(1, WINDOW + 1):
        left, right = flat[:-distance], flat[distance:]
        both = (left >= 0) & (right >= 0)
        weights = np.full(both.sum(), 1 / distance, dtype=np.float32)
        counts = counts + sparse.coo_matrix((weights, (left[both], right[both])), shape=(size, size)).tocsr()
    counts = (counts + counts.T).tocoo()
    totals = np.asarray(counts.sum(axis=1)).ravel()
    context = totals**CONTEXT
    information = np.log(counts.data / (totals[counts.row] * (context / (context.sum() or 1))[counts.col]))
    kept = information > 0
    if not kept.any():
        return np.zeros((size, 1), dtype=np.float32)
    matrix = sparse.csr_matrix((information[kept], (counts.row[kept], counts.col[kept])), shape=(size, size))
    vectors, _, values = _svd(matrix, dimensions)
    return np.asarray(vectors * np.sqrt(values), dtype=np.float32)


def _svd(matrix: Any, dimensions: int) -> tuple[Vectors, Vectors, Vectors]:
    """Left (N, D) and right (D, V) singular vectors and the values (D,)."""
    from sklearn.utils.extmath import randomized_svd  # a model that only predicts does not need scikit-learn

    most = max(1, min(dimensions, min(matrix.shape)))
    left, values, right = randomized_svd(matrix, n_components=most, n_iter=2, random_state=0)
    return left.astype(np.float32), right.astype(np.float32), values.astype(np.float32)
