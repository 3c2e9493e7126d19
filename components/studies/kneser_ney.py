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


def log_probs(pieces: Pieces, *, learned: Pieces, order: int, vocabulary: int) -> Floats:
    """Natural logarithms (T,) of the probability of every piece of documents, each followed by END, given the preceding
    pieces of its document, by the n-grams of other documents (`learned`), each followed by END."""
    if not len(learned):
        raise DataError("there are no tokens to count; add text to the corpus")
    stream = np.concatenate([[END], learned]).astype(np.int64)
    seen, asked = windows(stream, order), windows(np.concatenate([[END], pieces]).astype(np.int64), order)
    distinct = [np.unique(keys[starts], return_index=True, return_counts=True) for keys, starts in seen[1:]]
    result = np.full(len(pieces), 1.0 / vocabulary)
    for length, (ngrams, first, adjusted) in enumerate(distinct, 1):
        if not len(ngrams):
            break
        keys, starts = seen[length]
        at = starts[first]
        if length < order and len(distinct[length][0]):
            longer = seen[length + 1][1][distinct[length][1]]
            extended, counts = np.unique(keys[longer + 1], return_counts=True)
            place, preceded = _places(extended, ngrams)
            begins = (stream[at] == END) & (length > 1)
            adjusted = np.where(preceded & ~begins, counts[place], adjusted)
        discounts = np.asarray([0.0, *_discounts(np.bincount(np.minimum(adjusted, 5), minlength=6)[1:5])])
        contexts, group = np.unique(seen[length - 1][0][at], return_inverse=True)
        totals = np.bincount(group, weights=adjusted.astype(np.float64))
        gammas = np.bincount(group, weights=discounts[np.minimum(adjusted, 3)]) / totals
        keys, starts = asked[length]
        context, occurs = _places(contexts, asked[length - 1][0][starts])
        place, counted = _places(ngrams, keys[starts])
        left = np.where(counted, adjusted[place], 0)
        last = starts + length - 2
        lower = result[last]
        higher = (left - discounts[np.minimum(left, 3)]) / totals[context] + gammas[context] * lower
        result[last] = np.where(occurs, higher, lower)
    return np.log(result)


def _places(table: Keys, keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Index of each key in an ascending table, and whether it is in it."""
    places = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return places, table[places] == keys


def _discounts(numbers: NDArray[Any]) -> tuple[float, float, float]:
    if not numbers.all():
        return FALLBACK
    n1, n2, n3, n4 = map(float, numbers)
    y = n1 / (n1 + 2 * n2)
    estimated = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return estimated if all(0 <= value <= size for size, value in enumerate(estimated, 1)) else FALLBACK
