"""Search of a fixed set of texts in a stream of documents: exact by words, near by MinHash.

The texts are in memory, the documents are not: one batch of documents is in memory at a time.

Arrays: n documents, p hash permutations.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from components.data.formats.textkey import text_key
from components.data.ingestion.cleaning import clean
from components.data.ingestion.dedup import (
    Documents,
    Shingles,
    Sketches,
    Words64,
    band_key,
    band_rows,
    blocks,
    hash_between,
    hashed_words,
    word_sums,
)

#: Estimated Jaccard similarity from which a text is a near copy of one of dev or test.
NEAR: Final = 0.8
#: Values of the signatures of texts that are not compared with stored signatures.
SEARCH_PERMUTATIONS: Final = 128
#: Texts, and pairs of them, that are compared at once.
BATCH: Final = 4096
#: Words from which a text is also searched inside of documents. Shorter ones occur there by chance.
LEAST_WORDS = 8


class TextSearch:
    """The texts to find, and their signatures, `sketches`. `rows`: MinHash values per band; None: as many as the
    threshold allows."""

    def __init__(
        self, texts: Sequence[str], *, shingles: Shingles, rows: int | None = None, threshold: float = NEAR
    ) -> None:
        self._rows = rows or band_rows(threshold, permutations=shingles.permutations)
        self._threshold = threshold
        words, bounds = hashed_words(texts)
        sums = word_sums(words)
        first, last = bounds[:-1], bounds[1:]
        self._lengths = last - first
        self._hashes = hash_between(*sums, first, last)
        # Texts without words would be copies of each other.
        wordy = np.flatnonzero(self._lengths)
        keys, order = _sorted(hash_between(*sums, first, np.minimum(first + LEAST_WORDS, last))[wordy])
        self._beginnings = keys, wordy[order]
        self.sketches = shingles.sketches(texts)
        self._bands = [_sorted(keys) for keys in self._keys(self.sketches)]

    def exact(self, documents: Sequence[str]) -> Iterator[tuple[int, int]]:
        """(document, text) of every text that occurs in a document, by the index in `documents`; each pair once. A text
        of fewer than `LEAST_WORDS` words occurs in a document only if it is the whole one."""
        start = 0
        for block in blocks(documents):
            words, bounds = hashed_words(block)
            sums = word_sums(words)
            lengths = np.diff(bounds)
            short = np.flatnonzero((lengths > 0) & (lengths < LEAST_WORDS))
            inside = np.arange(max(len(words) - LEAST_WORDS + 1, 0))
            first, last = np.append(bounds[short], inside), np.append(bounds[short + 1], inside + LEAST_WORDS)
            places, texts = _equal(hash_between(*sums, first, last), *self._beginnings)
            first, last = first[places], first[places] + self._lengths[texts]
            document = np.searchsorted(bounds, first, side="right") - 1
            fits = last <= bounds[document + 1]
            fits[fits] = hash_between(*sums, first[fits], last[fits]) == self._hashes[texts[fits]]
            yield from sorted({*zip((start + document[fits]).tolist(), texts[fits].tolist(), strict=True)})
            start += len(block)

    def near(self, sketches: Sketches) -> Iterator[tuple[int, int, float]]:
        """(document, text, similarity) of every near copy; the documents by their index in `sketches` (n, p)."""
        count = max(len(self.sketches), 1)
        pairs = np.zeros(0, np.int64)
        for keys, band in zip(self._keys(sketches), self._bands, strict=True):
            documents, texts = _equal(keys, *band)
            pairs = np.union1d(pairs, documents * count + texts)
        for start in range(0, len(pairs), BATCH):
            documents, texts = np.divmod(pairs[start : start + BATCH], count)
            similar = (self.sketches[texts] == sketches[documents]).mean(axis=1)
            near = similar >= self._threshold
            yield from zip(documents[near].tolist(), texts[near].tolist(), similar[near].tolist(), strict=True)

    def _keys(self, sketches: Sketches) -> list[Words64]:
        starts = range(0, sketches.shape[1] // self._rows * self._rows, self._rows)
        return [band_key(sketches[:, start : start + self._rows]) for start in starts]


def _sorted(keys: Words64) -> tuple[Words64, Documents]:
    order = np.argsort(keys, kind="stable")
    return keys[order], order


def _equal(values: Words64, keys: Words64, numbers: Documents) -> tuple[Documents, Documents]:
    """(index of the value, number of the key) of all pairs of a value and one of the sorted keys that are equal."""
    if not len(keys):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first = np.searchsorted(keys, values)
    hits = np.flatnonzero(keys.take(first, mode="clip") == values)
    places = np.repeat(hits, np.searchsorted(keys, values[hits], side="right") - first[hits])
    return places, numbers[first[places] + np.arange(len(places)) - np.searchsorted(places, places)]


class HeldOut:
    """Texts that others must not repeat, such as those of dev and test.

    Args:
        permutations: values of the signatures that near copies are compared by.
    """

    def __init__(self, texts: Iterable[str], *, permutations: int = SEARCH_PERMUTATIONS) -> None:
        cleaned = list(dict.fromkeys(map(clean, texts)))
        self._shingles = Shingles(permutations=permutations)
        self._keys = set(map(text_key, cleaned))
        self._search = TextSearch(cleaned, shingles=self._shingles)

    def copies(self, texts: Sequence[str], sketches: Sketches | None = None) -> set[int]:
        """The indices of the texts that are copies or near copies of a held-out text, or that contain one, as the stage
        `leakage` counts them. `sketches`: (n, p) signatures of the texts, which are then clean; None: computed here."""
        cleaned = [clean(text) for text in texts] if sketches is None else texts
        copies = {index for index, text in enumerate(cleaned) if text_key(text) in self._keys}
        copies |= {index for index, _ in self._search.exact(cleaned)}
        if sketches is None:
            sketches = self._shingles.sketches(cleaned)
        return copies | {index for index, _, _ in self._search.near(sketches)}
