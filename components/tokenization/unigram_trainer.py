"""Training of a unigram vocabulary by expectation maximisation over all segmentations of every word.

Kudo 2018 (Subword Regularization), section 3.2: P(word) = sum over segmentations of the product of p(piece). Starting
from a large seed vocabulary, two steps alternate until the requested size is reached: EM estimates p, and the pieces
whose removal reduces the likelihood least are removed. The trainer of the `tokenizers` library is not deterministic,
because it sums in the order of a hash table; here the order is fixed.

Shape suffixes: W words of one length, K start positions of the pieces that end at one position.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Marks the beginning of a word.
SPACE: Final = "\u2581"
#: Maximum number of characters of a piece (SentencePiece's default).
LONGEST_PIECE: Final = 16
#: Longer words are split into parts of this many characters.
LONGEST_WORD: Final = 32
#: Size of the seed vocabulary in multiples of the requested size, and its minimum; ranked by frequency times length.
SEEDS: Final = 10
LEAST_SEEDS: Final = 10_000
#: Share of the pieces kept per round, and EM steps per round (SentencePiece's defaults).
KEPT: Final = 0.75
STEPS: Final = 2
#: Pieces with a smaller expected count are removed immediately.
RARE: Final = 0.5
#: Pruning stops at this multiple of the requested size; then the most probable pieces are selected.
MARGIN: Final = 1.1

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Group:
    """Lattices of the words of one length.

    Attributes:
        rows: (W,) indices into the list of all words.
        ending: for each end j = 1 .. length, (W, K) ids of the pieces with start j - K .. j - 1; the number of pieces
            if there is no such piece.
    """

    rows: NDArray[np.int64]
    ending: list[NDArray[np.int64]]


def learn_unigram(words: Mapping[str, int], *, size: int) -> list[tuple[str, float]]:
    """At most `size` (piece, log probability), most probable first; deterministic for given counts.

    Every character of `words` is a piece; if there are more than `size` characters, only these are pieces.

    Args:
        words: word -> count.
        size: requested number of pieces.
    """
    counted = _word_parts(words)
    characters = sorted({character for word in counted for character in word})
    pieces, weights = _seeds(counted, characters, limit=max(LEAST_SEEDS, SEEDS * size))
    scores = np.log(weights / weights.sum())
    texts, times = list(counted), np.fromiter(counted.values(), dtype=np.float64, count=len(counted))
    while True:
        for _ in range(STEPS):
            lattices = _lattices(texts, pieces)
            counts = _expected(lattices, times, scores)
            kept = (counts >= RARE) | _single(pieces)
            pieces, counts = [piece for piece, keep in zip(pieces, kept, strict=True) if keep], counts[kept]
            scores = np.log(np.maximum(counts, RARE) / np.maximum(counts, RARE).sum())
        if len(pieces) <= max(MARGIN * size, len(characters)):
            break
        room = max(int(MARGIN * size), int(KEPT * len(pieces)), len(characters))
        pieces, scores = _pruned(pieces, counts, scores, room=room)
    order = np.lexsort((np.arange(len(pieces)), -scores, ~_single(pieces)))[: max(size, len(characters))]
    taken = [(pieces[index], float(scores[index])) for index in order]
    return sorted(taken, key=lambda entry: (-entry[1], entry[0]))


def _word_parts(words: Mapping[str, int]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for word, times in words.items():
        for start in range(0, len(word), LONGEST_WORD):
            counts[word[start : start + LONGEST_WORD]] += times
    return dict(sorted(counts.items()))


def _seeds(words: Mapping[str, int], characters: list[str], *, limit: int) -> tuple[list[str], Floats]:
    """All characters and the best substrings by frequency times length, at most `limit`, and their weights.

    Substrings occur at least twice. As in SentencePiece, the characters of a piece after "▁" are of one kind: letters,
    digits or others.
    """
    counts: dict[str, int] = defaultdict(int)
    for word, times in words.items():
        kinds = [_kind(character) for character in word]
        for start in range(len(word)):
            first = start + (word[start] == SPACE)
            for end in range(start + 1, min(len(word), start + LONGEST_PIECE) + 1):
                if first < end and kinds[end - 1] != kinds[first]:
                    break
                counts[word[start:end]] += times
    longer = [(times * len(piece), piece) for piece, times in counts.items() if len(piece) > 1 and times > 1]
    longer.sort(key=lambda entry: (-entry[0], entry[1]))
    best = longer[: max(0, limit - len(characters))]
    weights = [counts[character] for character in characters] + [weight for weight, _ in best]
    return [*characters, *(piece for _, piece in best)], np.asarray(weights, dtype=np.float64)


def _lattices(words: list[str], pieces: list[str]) -> list[_Group]:
    number = {piece: index for index, piece in enumerate(pieces)}
    none = len(pieces)
    longest = max(map(len, pieces), default=1)
    by_length: dict[int, list[int]] = defaultdict(list)
    for row, word in enumerate(words):
        by_length[len(word)].append(row)
    return [
        _Group(
            np.asarray(rows),
            [
                np.asarray(
                    [
                        [number.get(words[row][start:end], none) for start in range(max(0, end - longest), end)]
                        for row in rows
                    ]
                )
                for end in range(1, length + 1)
            ],
        )
        for length, rows in sorted(by_length.items())
    ]


def _expected(groups: list[_Group], times: Floats, scores: Floats) -> Floats:
    """Expected count of each piece in all words, by the forward-backward algorithm over the lattices."""
    scores = np.append(scores, -np.inf)
    counts = np.zeros(len(scores))
    for group in groups:
        length, size = len(group.ending), len(group.rows)
        forward = np.full((length + 1, size), -np.inf)
        backward = np.full((length + 1, size), -np.inf)
        forward[0] = backward[length] = 0
        for end, ids_WK in enumerate(group.ending, 1):
            before = forward[end - ids_WK.shape[1] : end].T
            forward[end] = np.logaddexp.reduce(before + scores[ids_WK], axis=1)
        for end in range(length, 0, -1):
            ids_WK = group.ending[end - 1]
            starts = slice(end - ids_WK.shape[1], end)
            backward[starts] = np.logaddexp(backward[starts], (scores[ids_WK] + backward[end][:, None]).T)
        for end, ids_WK in enumerate(group.ending, 1):
            before = forward[end - ids_WK.shape[1] : end].T
            share = np.exp(before + scores[ids_WK] + (backward[end] - forward[length])[:, None])
            counts += np.bincount(ids_WK.ravel(), (share * times[group.rows][:, None]).ravel(), minlength=len(scores))
    return counts[:-1]


def _pruned(pieces: list[str], counts: Floats, scores: Floats, *, room: int) -> tuple[list[str], Floats]:
    """The `room` pieces whose removal would reduce the likelihood most; single characters are always kept.

    Without a piece, its text is segmented by the best sequence of other pieces, so the log likelihood decreases by the
    expected count times the difference of the scores.
    """
    without = np.full(len(pieces), -np.inf)
    padded = np.append(scores, -np.inf)
    for group in _lattices(pieces, pieces):
        length = len(group.ending)
        best = np.full((length + 1, len(group.rows)), -np.inf)
        best[0] = 0
        for end, ids_WK in enumerate(group.ending, 1):
            if end == length:
                ids_WK = np.where(ids_WK == group.rows[:, None], len(pieces), ids_WK)
            best[end] = (best[end - ids_WK.shape[1] : end].T + padded[ids_WK]).max(axis=1)
        without[group.rows] = best[length]
    loss = np.where(_single(pieces), np.inf, counts * (scores - without))
    kept = np.sort(np.lexsort((np.arange(len(pieces)), -loss))[:room])
    return [pieces[index] for index in kept], scores[kept]


@cache
def _kind(character: str) -> str:
    """ "L" for letters and marks, "N" for numbers, "" for others."""
    category = unicodedata.category(character)
    return {"L": "L", "M": "L", "N": "N"}.get(category[0], "")


def _single(pieces: list[str]) -> NDArray[np.bool_]:
    return np.fromiter((len(piece) == 1 for piece in pieces), dtype=bool, count=len(pieces))
