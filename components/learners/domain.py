"""Texts that are unlike the training texts of a model.

The similarity of a text is its mean cosine to the nearest `NEAREST` training texts, in TF-IDF weights of words and of
n-grams of 2 to 4 characters. Terms that no training text has count in the norm, so a text in another language or about
something else has a low similarity. A text is out of the domain if its conformal p-value, the share of training texts
that are at most as similar to those of other units (copies, groups, documents), is at most `LEVEL` (Laxhammar and
Falkman 2010, "Conformal prediction for distribution-independent anomaly detection"). Fewer than 1 / LEVEL training
texts have no such share; then the p-value is the lower tail of Student's predictive distribution. No label and no text
from outside is used. The vectors do not depend on the model, because the features of a model that is trained to tell a
few classes apart hardly differ between its training texts. Terms are stored as hashes.

Shapes: N training texts, V hashes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy import sparse
from scipy.special import stdtr

from components.core.errors import ArtifactError
from components.data.tasks.data import Fields, Labels, spaced
from components.data.tasks.members import DOMAIN
from components.learners.words.features import counts_of, idf_of, terms_of, weighted

#: Highest p-value of a flagged text: about this share of the domain's own texts is flagged.
LEVEL: Final = 0.05
NEAREST: Final = 10
#: Maximum number of training texts, evenly spaced, and of characters of a text that are read.
TEXTS, CHARACTERS = 1000, 1000
#: V.
HASHES: Final = 2**17


@dataclass(frozen=True)
class Domain:
    """N training texts as vectors (N, V) of norm 1, `idf` (V,), and similarities (N,) to the texts of other units,
    ascending."""

    vectors: sparse.csr_matrix
    similarities: NDArray[np.float32]
    idf: NDArray[np.float32]

    @classmethod
    def fit(cls, rows: Sequence[Fields], units: Labels | None = None) -> Self:
        """The domain of training rows; equal texts count once. `units`: (N,) numbers; None: each row is a unit."""
        # Some of the rows may have equal texts.
        first = {_text(rows[index]): index for index in reversed(spaced(len(rows), 4 * TEXTS))}
        texts = sorted(first, key=first.__getitem__)
        texts = [texts[index] for index in spaced(len(texts), TEXTS)]
        blocks = _counted(texts)
        # A word and an n-gram of one text may have the same hash.
        both = blocks[0] + blocks[1]
        frequencies = np.bincount(both.indices, minlength=HASHES)
        idf = idf_of(frequencies, len(texts))
        vectors = _vectors(blocks, idf)
        similarities = []
        of_texts = np.asarray([first[text] if units is None else units[first[text]] for text in texts])
        for unit in np.unique(of_texts):
            inside = np.flatnonzero(of_texts == unit)
            # As for a text of a new unit, the document frequencies leave out those of its own.
            without, others = idf.copy(), len(texts) - len(inside)
            used, counts = np.unique(both[inside].indices, return_counts=True)
            without[used] = idf_of(frequencies[used] - counts, others)
            cosines = (_vectors([block[inside] for block in blocks], without) @ vectors.T).toarray()
            cosines[:, inside] = -np.inf
            similarities += [_similarity(row, others=others) for row in cosines]
        return cls(vectors, np.sort(np.asarray(similarities, dtype=np.float32)), idf)

    def p_value(self, row: Fields) -> float:
        """The conformal p-value of a text: (1 + the number of training texts that are at most as similar) / (1 + N)."""
        vector = _vectors(_counted([_text(row)]), self.idf).toarray()[0]
        similarity = _similarity(self.vectors @ vector, others=len(self.similarities))
        count = len(self.similarities)
        if count < 1 / LEVEL:
            mean, std = self.similarities.mean(), max(float(self.similarities.std(ddof=1)) if count > 1 else 1.0, 1e-6)
            return float(stdtr(max(count - 1, 1), (similarity - mean) / (std * np.sqrt(1 + 1 / count))))
        lower = np.searchsorted(self.similarities, similarity, side="right")
        return float((1 + lower) / (1 + count))

    def excludes(self, row: Fields) -> bool:
        return self.p_value(row) <= LEVEL

    def write(self, directory: Path) -> None:
        arrays = {
            "values": self.vectors.data,
            "hashes": self.vectors.indices,
            "ends": self.vectors.indptr,
            "similarities": self.similarities,
        }
        save_file(arrays, directory / DOMAIN)

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The domain of a classifier; None if an earlier version has written it.

        Raises:
            ArtifactError: the file is damaged.
        """
        path = directory / DOMAIN
        if not path.is_file():
            return None
        try:
            stored = load_file(path)
            shape = (len(stored["similarities"]), HASHES)
            vectors = sparse.csr_matrix((stored["values"], stored["hashes"], stored["ends"]), shape=shape)
            vectors.check_format()
            idf = idf_of(np.bincount(vectors.indices, minlength=HASHES), shape[0])
        except Exception as error:  # safetensors and scipy raise errors of several classes
            raise ArtifactError(f"{path}: not the texts of a model ({error}); run its stage again") from error
        return cls(vectors, stored["similarities"], idf)


def _text(row: Fields) -> str:
    return "\n".join(row)[:CHARACTERS]


def _counted(texts: Sequence[str]) -> list[sparse.csr_matrix]:
    """The (N, V) counts of words, and those of n-grams."""

    def count(start: int, terms: Callable[[str], Iterable[str]]) -> sparse.csr_matrix:
        # Terms may contain half of a surrogate pair. The hashes of the two blocks are different.
        how = "surrogatepass"
        return counts_of(
            texts, lambda text: (crc32(term.encode("utf-8", how), start) % HASHES for term in terms(text)), HASHES
        )

    return [count(0, terms_of("word", (1, 1))), count(1, terms_of("char_wb", (2, 4)))]


def _vectors(blocks: Sequence[sparse.csr_matrix], idf: NDArray[np.float32]) -> sparse.csr_matrix:
    """(N, V) of norm 1, half of it words; TF-IDF as of `Tfidf`."""
    words, ngrams = (weighted(block, idf) for block in blocks)
    return (words + ngrams) * np.float32(np.sqrt(0.5))


def _similarity(cosines: NDArray[np.float32], *, others: int) -> np.float32:
    """Mean of the largest cosines of at most `others` texts; 0 without any."""
    nearest = min(NEAREST, others)
    return np.float32(np.partition(cosines, -nearest)[-nearest:].mean()) if nearest else np.float32(0)
