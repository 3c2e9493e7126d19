"""Learning a unigram vocabulary: expectation maximisation over all segmentations of every word.

Kudo 2018 (Subword Regularization), section 3.2. A word is drawn piece by piece, P(word) = sum over its segmentations of
the product of p(piece). From a large seed vocabulary, in turn: EM finds p, and the pieces whose loss would cost the
likelihood least are dropped, until as many are left as were asked for. The `tokenizers` library has a trainer of its
own, but what it finds differs from run to run: it adds up in the order of a hash table. Here the order is fixed.

Shape suffixes: W words of one length, K starts of the pieces that end at one place.
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
#: Characters of a piece at most (SentencePiece's default).
LONGEST_PIECE: Final = 16
#: Longer words are learned from in stretches of this many characters.
LONGEST_WORD: Final = 32
#: Seeds: so many times the size asked for and no fewer than LEAST_SEEDS, the best by frequency times length.
SEEDS: Final = 10
LEAST_SEEDS: Final = 10_000
#: Pieces kept from one round to the next, and steps of EM in a round (SentencePiece's defaults).
KEPT: Final = 0.75
STEPS: Final = 2
#: Expected count under which a piece is dropped at once.
RARE: Final = 0.5
#: The last round stops this much above the size; the most probable pieces are then taken.
MARGIN: Final = 1.1

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Group:
    """Words of one length.

    Attributes:
        rows: (W,) their places in the list of all words.
        ending: for each end j = 1 .. length, (W, K) ids of the pieces that end there, by start j - K .. j - 1; the
            number of pieces where there is none.
    """

    rows: NDArray[np.int64]
    ending: list[NDArray[np.int64]]


def learn_unigram(words: Mapping[str, int], *, size: int) -> list[tuple[str, float]]:
    """Up to `size` pieces with their log probabilities, the most probable first; every character of `words` is among
    them (if there are more characters than `size`, nothing else is). The same for the same counts.

    Args:
        words: word -> how often it comes.
    """
    counted = _stretches(words)
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


def _stretches(words: Mapping[str, int]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for word, times in words.items():
        for start in range(0, len(word), LONGEST_WORD):
            counts[word[start : start + LONGEST_WORD]] += times
    return dict(sorted(counts.items()))


def _seeds(words: Mapping[str, int], characters: list[str], *, limit: int) -> tuple[list[str], Floats]:
    """All characters, and the substrings that come twice, the best `limit` by frequency times length.

    As in SentencePiece, a piece is of one kind throughout, letters, digits or neither, after the mark of a word.
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
    """How often each piece is expected in all words: forward-backward over their segmentations."""
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
    """The characters, and of the longer pieces those that the likelihood would miss most, `room` in all.

    Without a piece its text is cut as the other pieces do it best: the log likelihood falls by its expected count
    times the difference.
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
    """L (letters and their marks), N (digits) or neither."""
    category = unicodedata.category(character)
    return {"L": "L", "M": "L", "N": "N"}.get(category[0], "")


def _single(pieces: list[str]) -> NDArray[np.bool_]:
    return np.fromiter((len(piece) == 1 for piece in pieces), dtype=bool, count=len(pieces))
