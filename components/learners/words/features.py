"""TF-IDF features of a row: of one text, or of a pair of texts.

Shapes: N rows, F features.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy import sparse

from components.core.artifacts import json_of
from components.data.tasks.data import Fields
from components.learners.words.latent import LatentSemantics, Vectors, WordMeans
from components.learners.words.text import Counted, Tfidf, split_words

#: `text`: the TF-IDF vectors of the first text, of all vectorizers side by side. `cosine`: the cosine of both texts.
#: `pair`: the vectors u and v of both texts, |u - v|, u v and their cosine.
Form = Literal["text", "cosine", "pair"]
#: Files of features: their description, and their arrays.
DESCRIPTION: Final = "words.json"
WEIGHTS: Final = "words.safetensors"


@dataclass(frozen=True)
class WordFeatures:
    """The features of a words model: fitted vectorizers, the first on words; the forms `cosine` and `pair` have one."""

    form: Form
    vectorizers: tuple[Tfidf, ...]

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

    def words(self, row: Fields) -> tuple[int, int]:
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
        """The features that `dump` has described.

        Raises:
            ValueError, KeyError, TypeError: they do not fit each other.
        """
        if described["form"] not in get_args(Form):
            raise ValueError(f"unknown features {described['form']!r}")
        result = (
            Tfidf.of(stored["terms"], arrays[f"idf.{index}"], stored["analyzer"], tuple(stored["ngram_range"]))
            for index, stored in enumerate(described["vectorizers"])
        )
        return cls(described["form"], tuple(result))


@dataclass(frozen=True)
class LatentFeatures:
    """Dense features of one text.

    Attributes:
        semantics: fitted.
        means: fitted.
    """

    semantics: LatentSemantics
    means: WordMeans
    form: ClassVar[Literal["latent"]] = "latent"

    @property
    def vocabulary(self) -> int:
        return len(self.semantics.vectorizer.terms) + len(self.means.words)

    @property
    def widths(self) -> tuple[int, int]:
        return len(self.semantics.components), len(self.means.centre)

    @property
    def width(self) -> int:
        return sum(self.widths)

    def parts(self, texts: Sequence[str]) -> tuple[Vectors, Vectors]:
        return self.semantics.vectors(texts), self.means.vectors(texts)

    def matrix(self, rows: Sequence[Fields]) -> Any:
        """(N, F). A row does not depend on the others."""
        if not rows:
            return np.zeros((0, self.width))
        return np.concatenate(self.parts([row[0] for row in rows]), axis=1, dtype=np.float64)

    def words(self, row: Fields) -> tuple[int, int]:
        """Number of words of the row's text, and how many of them are unknown."""
        result = self.means.ids(row[0])
        return len(result), int((result < 0).sum())

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        semantics, arrays = self.semantics.dump()
        means, further = self.means.dump()
        return {"form": self.form, "semantics": semantics, "means": means}, arrays | further

    @classmethod
    def load(cls, described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> LatentFeatures:
        """The features that `dump` has described.

        Raises:
            ValueError, KeyError, TypeError: they do not fit each other.
        """
        return cls(LatentSemantics.load(described["semantics"], arrays), WordMeans.load(described["means"], arrays))


#: Features of rows that a words model reads.
RowFeatures = WordFeatures | LatentFeatures


def load_features(described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> RowFeatures:
    """What `dump` has described.

    Raises:
        ValueError, KeyError, TypeError: they do not fit each other.
    """
    load = LatentFeatures.load if described["form"] == LatentFeatures.form else WordFeatures.load
    return load(described, arrays)


def write_arrays(directory: Path, described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write what `dump` returns."""
    # ASCII, because a term may contain half of a surrogate pair, which UTF-8 cannot express.
    (directory / DESCRIPTION).write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    save_file(dict(arrays), directory / WEIGHTS)


def read_arrays(directory: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What `write_arrays` has written.

    Raises:
        OSError, ValueError: a file is missing or damaged.
    """
    return json_of(directory / DESCRIPTION), load_file(directory / WEIGHTS)


def fit_text(
    rows: Sequence[Fields],
    *,
    ngrams: tuple[int, int],
    characters: tuple[int, int] | None = None,
    count: Callable[..., Counted] | None = None,
) -> tuple[WordFeatures, Any]:
    """Features of one text with the vocabulary of `rows`, and (N, F); `ngrams` of words, and of `characters`. `count`:
    analyzer, n-grams -> counts of these texts and others."""
    texts = [row[0] for row in rows]
    count = count or partial(Counted, texts)
    forms = [("word", ngrams), *([] if characters is None else [("char_wb", characters)])]
    vectorizers, matrices = zip(*(count(*form).fit(texts) for form in forms), strict=True)
    return WordFeatures("text", vectorizers), sparse.hstack(matrices, format="csr")


def cosines(first: sparse.csr_matrix, second: sparse.csr_matrix) -> NDArray[np.float64]:
    """(N,) cosines of the rows of two (N, V) matrices with rows of norm 1 or 0."""
    return np.asarray(first.multiply(second).sum(1)).ravel()
