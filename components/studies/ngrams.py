"""N-grams with interpolated modified Kneser-Ney smoothing (Chen and Goodman 1999, sections 2.7 and 4.1.6), with KenLM's
conventions:

    p(w | h) = max(a(hw) - D(a(hw)), 0) / sum_v a(hv)  +  gamma(h) p(w | h')         h' is h without its first piece
    p(w | )  = max(a(w) - D(a(w)), 0) / sum_v a(v)     +  gamma() / V
    gamma(h) = (D_1 N_1(h) + D_2 N_2(h) + D_3 N_3+(h)) / sum_v a(hv)

a is the number of occurrences for the longest n-grams and for those that begin a document, and else the number of
different pieces before the n-gram; N_i(h) is the number of pieces that follow h with a = i. The discounts D_1, D_2 and
D_3 (a >= 3) of a length come from its numbers n_i of n-grams with a = i:

    Y = n_1 / (n_1 + 2 n_2)        D_i = i - (i + 1) Y n_{i+1} / n_i

A document is END w_1 ... w_T END; n-grams do not cross documents. The key of an n-gram is a 64-bit hash of its pieces:
two of the same length share one with a probability of about 3e-12 for ten million n-grams. A model takes about 100
bytes of memory a token at order 5.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pandas.util import hash_array

from components.core.errors import DataError
from components.tokenization.special import END

#: Discounts of a length whose n_1 to n_4 give none, as on a tiny corpus (the fallback of KenLM).
FALLBACK: Final = (0.5, 1.0, 1.5)

Floats = NDArray[np.float64]
Keys = NDArray[np.uint64]
Pieces = NDArray[np.int64]


def windows(pieces: Pieces, order: int) -> list[tuple[Keys, NDArray[np.int64]]]:
    """For k = 0 to N the keys (T - k + 1,) of the windows of k pieces, by their first position, and the positions of
    those within one document: only their first and their last piece may be END. The END before the documents alone is
    none of them, and the key of the empty window is 0."""
    keys = np.zeros(len(pieces) + 1, dtype=np.uint64)
    ends = np.concatenate([[0], np.cumsum(pieces == END)])
    by_length = [(keys, np.arange(len(keys)))]
    for length in range(1, order + 1):
        first = np.arange(max(0, len(pieces) - length + 1))
        added = pieces[length - 1 :].astype(np.uint64) + np.uint64(1)
        keys = hash_array(keys[: len(first)] * np.uint64(0x9E3779B97F4A7C15) + added)
        inside = (ends[first + length - 1] <= ends[first + 1]) & (first + length > 1)
        by_length.append((keys, np.flatnonzero(inside)))
    return by_length


@dataclass(frozen=True)
class _Length:
    """The n-grams of one length with their values a, and their contexts with sums of a and gamma; ascending by key."""

    keys: Keys
    adjusted: NDArray[np.int64]
    contexts: Keys
    totals: Floats
    gammas: Floats
    discounts: Floats

    def interpolated(self, keys: Keys, contexts: Keys, lower: Floats) -> Floats:
        """p(w | h) of n-grams, from their keys, the keys of h, and p(w | h')."""
        at, seen = _places(self.contexts, contexts)
        place, counted = _places(self.keys, keys)
        adjusted = np.where(counted, self.adjusted[place], 0)
        left = adjusted - self.discounts[np.minimum(adjusted, 3)]
        return np.where(seen, left / self.totals[at] + self.gammas[at] * lower, lower)


def _places(table: Keys, keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Index of each key in an ascending table, and whether it is in it."""
    places = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return places, table[places] == keys


@dataclass(frozen=True)
class NgramModel:
    """An estimated model. `lengths`: the n-grams of length 1 to N; fewer if no document has n-grams of the longest
    lengths."""

    vocabulary: int
    lengths: list[_Length]

    def log_probs(self, pieces: Pieces) -> Floats:
        """Natural logarithms (T,) of the probability of every piece of documents, each followed by END, given the
        preceding pieces of its document."""
        stream = np.concatenate([[END], pieces]).astype(np.int64)
        by_length = windows(stream, len(self.lengths))
        result = np.full(len(pieces), 1.0 / self.vocabulary)
        for length, entries in enumerate(self.lengths, 1):
            keys, starts = by_length[length]
            last = starts + length - 2
            result[last] = entries.interpolated(keys[starts], by_length[length - 1][0][starts], result[last])
        return np.log(result)


def estimate(pieces: Pieces, *, order: int, vocabulary: int) -> NgramModel:
    """Estimate a model. `pieces`: (T,) ids of documents, each followed by END."""
    if not len(pieces):
        raise DataError("there are no tokens to count; add text to the corpus")
    stream = np.concatenate([[END], pieces]).astype(np.int64)
    by_length = windows(stream, order)
    lengths: list[_Length] = []
    longer: Keys | None = None
    # From the longest n-grams to the shortest: the distinct ones of a length give the values a of the next.
    for length in range(order, 0, -1):
        keys, starts = by_length.pop()
        if not len(starts):
            continue
        distinct, first, adjusted = np.unique(keys[starts], return_index=True, return_counts=True)
        at, shorter = starts[first], by_length[-1][0]
        if longer is not None:
            extended, counts = np.unique(longer, return_counts=True)
            place, preceded = _places(extended, distinct)
            begins = (stream[at] == END) & (length > 1)
            adjusted = np.where(preceded & ~begins, counts[place], adjusted)
        longer = shorter[at + 1]
        lengths.append(_length(distinct, adjusted, shorter[at]))
    return NgramModel(vocabulary, lengths[::-1])


def _length(keys: Keys, adjusted: NDArray[np.int64], of: Keys) -> _Length:
    discounts = np.asarray([0.0, *_discounts(np.bincount(np.minimum(adjusted, 5), minlength=6)[1:5])])
    contexts, group = np.unique(of, return_inverse=True)
    totals = np.asarray(np.bincount(group, weights=adjusted.astype(np.float64)), dtype=np.float64)
    gammas = np.bincount(group, weights=discounts[np.minimum(adjusted, 3)]) / totals
    return _Length(keys, adjusted, contexts, totals, gammas, discounts)


def _discounts(numbers: NDArray[Any]) -> tuple[float, float, float]:
    if not numbers.all():
        return FALLBACK
    n1, n2, n3, n4 = map(float, numbers)
    y = n1 / (n1 + 2 * n2)
    estimated = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return estimated if all(0 <= value <= size for size, value in enumerate(estimated, 1)) else FALLBACK
