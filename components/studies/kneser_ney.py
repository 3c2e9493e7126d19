"""N-grams with interpolated modified Kneser-Ney smoothing (Chen and Goodman 1999, sections 2.7 and 4.1.6), with KenLM's
conventions:

    p(w | h) = max(a(hw) - D(a(hw)), 0) / sum_v a(hv)  +  gamma(h) p(w | h')         h' is h without its first piece
    p(w | )  = max(a(w) - D(a(w)), 0) / sum_v a(v)     +  gamma() / V
    gamma(h) = (D_1 N_1(h) + D_2 N_2(h) + D_3 N_3+(h)) / sum_v a(hv)

a is the number of occurrences for the longest n-grams and for those that begin a document, and else the number of
different pieces before the n-gram; N_i(h) is the number of pieces that follow h with a = i. The discounts D_1, D_2 and
D_3 (a >= 3) of a length come from its numbers n_i of n-grams with a = i:

    Y = n_1 / (n_1 + 2 n_2)        D_i = i - (i + 1) Y n_{i+1} / n_i

A document is END w_1 ... w_T END; n-grams do not cross documents. A model takes about 200 bytes of memory a token.
"""

import numpy as np
import pandas
from numpy.typing import NDArray

from components.core.errors import DataError
from components.data.scoring.base import Floats
from components.tokenization.special import END

#: Discounts of a length whose n_1 to n_4 give none, as on a tiny corpus (the fallback of KenLM).
FALLBACK = (0.5, 1.0, 1.5)

Pieces = NDArray[np.int64]


def log_probs(pieces: Pieces, *, learned: Pieces, order: int, vocabulary: int) -> Floats:
    """Natural logarithms (T,) of the probability of every piece of documents, each followed by END, given the preceding
    pieces of its document, by the n-grams of other documents (`learned`), each followed by END; the last may be cut."""
    if not len(learned):
        raise DataError("there are no tokens to count; add text to the corpus")
    # `learned` may be cut within a document.
    stream = np.concatenate([[END], learned, [END], pieces]).astype(np.int64)
    at, size = np.arange(len(stream)), len(stream)
    ends = np.maximum.accumulate(np.where(stream == END, at, 0))
    # Length of the longest n-gram of a document that ends at each piece; only its first and last piece may be END.
    usable = np.append(0, at[1:] - ends[:-1] + 1)
    result = np.full(size, 1.0 / vocabulary)
    # Number of the n-gram of each length that ends at each piece.
    shorter, numbers = np.zeros(size, dtype=np.int64), pandas.factorize(stream)[0]
    for length in range(1, order + 1):
        longer, contexts = pandas.factorize(np.roll(numbers, 1) * (stream.max() + 1) + stream)[0], np.roll(shorter, 1)
        seen = at[(at <= len(learned)) & (usable >= length)]
        adjusted = np.bincount(numbers[seen], minlength=size)
        if length < order:
            # An n-gram that begins a document has no piece before it.
            preceded = np.bincount(numbers[_distinct(longer, seen[usable[seen] > length])], minlength=size)
            adjusted = np.where(preceded, preceded, adjusted)
        distinct = _distinct(numbers, seen)
        values, before = adjusted[numbers[distinct]], contexts[distinct]
        discounts = np.append(0.0, _discounts(np.bincount(np.minimum(values, 5), minlength=6)[1:5]))
        totals = np.bincount(before, weights=values, minlength=size)
        freed = np.bincount(before, weights=discounts[np.minimum(values, 3)], minlength=size)
        asked = at[(at > len(learned) + 1) & (usable >= length) & (totals[contexts] > 0)]
        left, context = adjusted[numbers[asked]], contexts[asked]
        higher = (left - discounts[np.minimum(left, 3)]) / totals[context]
        result[asked] = higher + freed[context] / totals[context] * result[asked]
        shorter, numbers = numbers, longer
    return np.log(result[len(learned) + 2 :])


def _distinct(numbers: Pieces, places: Pieces) -> Pieces:
    """The first of the places of each n-gram."""
    return places[~pandas.Series(numbers[places]).duplicated().to_numpy()]


def _discounts(numbers_4: Pieces) -> Floats:
    fallback = np.asarray(FALLBACK)
    if not numbers_4.all():
        return fallback
    sizes = np.arange(1, 4)
    y = numbers_4[0] / (numbers_4[0] + 2 * numbers_4[1])
    estimated: Floats = sizes - (sizes + 1) * y * numbers_4[1:] / numbers_4[:-1]
    return estimated if ((estimated >= 0) & (estimated <= sizes)).all() else fallback
