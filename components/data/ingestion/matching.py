"""Search of a fixed set of texts in a stream of documents: exact by words, near by MinHash.

The texts are in memory, the documents are not: one batch of documents is in memory at a time.

Arrays: n documents with w words, t texts, p hash permutations.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from components.data.formats.textkey import text_key
from components.data.ingestion.cleaning import clean
from components.data.ingestion.dedup import (
    NGRAM,
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

#: Splits whose texts are left out.
HELD_OUT: Final = ("dev", "test")
#: Estimated Jaccard similarity from which a text is a near copy of one of dev or test.
NEAR: Final = 0.8
#: Values of the signatures of texts that are not compared with stored signatures.
SEARCH_PERMUTATIONS: Final = 128
#: Texts that are searched at once.
BATCH: Final = 4096
#: Words from which a text is also searched inside of documents. Shorter ones occur there by chance.
LEAST_WORDS = 8
Pairs = Iterator[tuple[int, int]]


class TextSearch:
    """The texts to find. `rows`: MinHash values per band."""

    def __init__(self, texts: Sequence[str], *, shingles: Shingles | None, rows: int, threshold: float) -> None:
        self.shingles, self.threshold = shingles, threshold
        words, bounds = hashed_words(texts) if texts else (np.zeros(0, np.uint64), np.zeros(1, np.int64))
        sums, inverse = word_sums(words)
        lengths = np.diff(bounds)
        #: Hash of all words of each text, and their number.
        self._hashes = hash_between(sums, inverse, bounds[:-1], bounds[1:])
        self._lengths = lengths
        whole, inside = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for index in np.flatnonzero(lengths).tolist():
            if lengths[index] < LEAST_WORDS:
                whole[int(self._hashes[index])].append(index)
            else:
                first = bounds[index]
                anchor = hash_between(sums, inverse, first, first + LEAST_WORDS)
                inside[int(anchor)].append(index)
        self._whole, self._inside = dict(whole), dict(inside)
        self._whole_keys, self._inside_keys = (np.sort(np.fromiter(keys, np.uint64)) for keys in (whole, inside))
        self._sketches = shingles.sketches(texts) if shingles and texts else np.zeros((0, 0), np.uint16)
        # Texts without words would be near copies of each other's hash only.
        self._rows = rows
        self._bands: list[tuple[Words64, NDArray[np.int64]]] = []
        for band in range(self._sketches.shape[1] // rows):
            keys = band_key(self._sketches[:, band * rows : (band + 1) * rows])
            order = np.argsort(keys, kind="stable")
            self._bands.append((keys[order], order))

    def exact(self, documents: Sequence[str]) -> Pairs:
        """(document, text) of every text that occurs in a document, by the index in `documents`; each pair once."""
        for first, last in blocks(documents):
            yield from ((first + inside, text) for inside, text in self._exact(documents[first:last]))

    def _exact(self, documents: Sequence[str]) -> Pairs:
        words, bounds = hashed_words(documents)
        sums, inverse = word_sums(words)
        if self._whole:
            hashes = hash_between(sums, inverse, bounds[:-1], bounds[1:])
            lengths = np.diff(bounds)
            for index in np.flatnonzero(_among(hashes, self._whole_keys) & (lengths > 0)).tolist():
                for text in self._whole[int(hashes[index])]:
                    if self._lengths[text] == lengths[index]:
                        yield index, text
        if self._inside and len(words) >= LEAST_WORDS:
            starts = np.arange(len(words) - LEAST_WORDS + 1)
            anchors = hash_between(sums, inverse, starts, starts + LEAST_WORDS)
            seen: set[tuple[int, int]] = set()
            for start in np.flatnonzero(_among(anchors, self._inside_keys)).tolist():
                index = int(np.searchsorted(bounds, start, side="right")) - 1
                for text in self._inside[int(anchors[start])]:
                    end = start + int(self._lengths[text])
                    fits = end <= bounds[index + 1] and hash_between(sums, inverse, start, end) == self._hashes[text]
                    if fits and (index, text) not in seen:
                        seen.add((index, text))
                        yield index, text

    def near(self, sketches: Sketches) -> Iterator[tuple[int, int, float]]:
        """(document, text, similarity) of every near copy; the documents by their index in `sketches` (n, p)."""
        best: dict[tuple[int, int], float] = {}
        for band, (keys, order) in enumerate(self._bands):
            wanted = band_key(sketches[:, band * self._rows : (band + 1) * self._rows])
            left = np.searchsorted(keys, wanted, side="left")
            right = np.searchsorted(keys, wanted, side="right")
            for document in np.flatnonzero(right > left).tolist():
                texts = order[left[document] : right[document]]
                similar = (self._sketches[texts] == sketches[document]).mean(axis=1)
                for text, similarity in zip(texts.tolist(), similar.tolist(), strict=True):
                    if similarity >= self.threshold:
                        best[document, text] = similarity
        for (document, text), similarity in sorted(best.items()):
            yield document, text, similarity


class HeldOut:
    """Texts that others must not repeat, such as those of dev and test.

    Args:
        permutations: values of the signatures that near copies are compared by.
    """

    def __init__(self, texts: Iterable[str], *, permutations: int = SEARCH_PERMUTATIONS) -> None:
        cleaned = list(dict.fromkeys(map(clean, texts)))
        self._shingles = Shingles(ngram=NGRAM, permutations=permutations)
        self._keys = set(map(text_key, cleaned))
        rows = band_rows(NEAR, permutations=permutations)
        self._search = TextSearch(cleaned, shingles=self._shingles, rows=rows, threshold=NEAR)

    def copies(self, texts: Sequence[str], sketches: Sketches | None = None) -> set[int]:
        """The indices of the texts that are copies or near copies of a held-out text, or that contain one, as the stage
        `leakage` counts them. `sketches`: (n, p) signatures of the texts, which are then clean; None: computed here."""
        cleaned = [clean(text) for text in texts] if sketches is None else texts
        copies = {index for index, text in enumerate(cleaned) if text_key(text) in self._keys}
        copies |= {index for index, _ in self._search.exact(cleaned)}
        if sketches is None:
            sketches = self._shingles.sketches(cleaned)
        return copies | {index for index, _, _ in self._search.near(sketches)}


def _among(values: Words64, among: Words64) -> NDArray[np.bool_]:
    """(n,) whether each value is one of the sorted `known`."""
    if not len(among):
        return np.zeros(len(values), dtype=bool)
    places = np.minimum(np.searchsorted(among, values), len(among) - 1)
    return np.asarray(among[places] == values)
