"""TF-IDF features of a row: of one text, or of a pair of texts.

Shapes: N rows, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.data.tasks.data import Fields
from components.learners.words.text import Analyzer, Counted, Tfidf, split_words

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
