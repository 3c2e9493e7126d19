"""Encoding of pre-split texts (tagging): each word is encoded separately, as in the middle of a text; and overlapping
windows over texts that exceed the maximum length of a sequence.

The alignment of pieces and words is exact, because no piece crosses a word boundary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from components.data.segmenters import SEGMENTERS
from components.tokenization.base import Tokenizer
from components.tokenization.special import UNK

_UNKNOWN: Final = np.asarray([UNK], dtype=np.int64)


@dataclass(frozen=True)
class WordPieces:
    """A text of W words as P pieces, without special pieces: `ids` (P,) int64, and `spans` (W, 2) int64 of the first
    and last piece of each word. A piece in no span is a space between words (character vocabularies)."""

    ids: NDArray[np.int64]
    spans: NDArray[np.int64]


def encode_words(tokenizer: Tokenizer, texts: Sequence[Sequence[str]]) -> list[WordPieces]:
    """Encode pre-split texts; every distinct word is encoded once.

    Words are encoded as in the middle of a text: with a leading space if it is part of the word (byte-level BPE,
    unigram), or separated by a space piece (characters). Words of languages without spaces are not separated, unless
    the tokenizer's segmentation inserts spaces. A word without pieces (control characters) becomes UNK."""
    adjacent = [_without_space(tokenizer, words) for words in texts]
    forms = [
        [word if joined or not tokenizer.leads_with_space else f" {word}" for word, joined in zip(*row, strict=True)]
        for row in zip(texts, adjacent, strict=True)
    ]
    distinct = dict.fromkeys(form for row in forms for form in row)
    encoded = dict(zip(distinct, tokenizer.encode_batch(list(distinct)), strict=True))
    space = np.asarray([] if tokenizer.leads_with_space else tokenizer.encode_batch([" "])[0], dtype=np.int64)
    return [
        _joined([encoded[form] for form in row], joined, space) for row, joined in zip(forms, adjacent, strict=True)
    ]


def _without_space(tokenizer: Tokenizer, words: Sequence[str]) -> list[bool]:
    segments = tokenizer.segmentation.name != "none"
    # If segmentation inserts spaces, the words are encoded with spaces.
    if not segments or (tokenizer.segmented and tokenizer.separator == " "):
        return [False] * len(words)
    scripts = [segmenter.script for segmenter in SEGMENTERS.values()]
    return [False] * len(words[:1]) + [
        any(script.match(before[-1:]) and script.match(word[:1]) for script in scripts)
        for before, word in pairwise(words)
    ]


def _joined(words: Sequence[NDArray[np.int32]], adjacent: Sequence[bool], space: NDArray[np.int64]) -> WordPieces:
    parts: list[NDArray[np.int64]] = []
    spans = np.zeros((len(words), 2), dtype=np.int64)
    position = 0
    for index, (ids, joined) in enumerate(zip(words, adjacent, strict=True)):
        if index and not joined and len(space):
            parts.append(space)
            position += len(space)
        pieces = ids.astype(np.int64) if len(ids) else _UNKNOWN
        parts.append(pieces)
        spans[index] = position, position + len(pieces) - 1
        position += len(pieces)
    return WordPieces(np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64), spans)


@dataclass(frozen=True)
class Window:
    """A window over a text's units.

    Attributes:
        start, end: the units in the window, end exclusive.
        first, last: the units that are predicted in this window, end exclusive. Each unit is predicted in one window,
            the one with the most context on both sides.
        pieces: range of the text's pieces in the window, end exclusive.
    """

    start: int
    end: int
    first: int
    last: int
    pieces: tuple[int, int]


def cut(spans: NDArray[np.int64], *, room: int, stride: int) -> list[Window]:
    """Windows that cover all units of a text.

    Args:
        spans: (U, 2) indices of each unit's first and last piece, ascending; U >= 1.
        room: maximum number of pieces of a window. A longer unit is a window of its own, with its first pieces.
        stride: minimum number of pieces between the starts of two windows; less only if a unit would be skipped.
    """
    firsts, ends = spans[:, 0], spans[:, 1] + 1
    starts, stops = [0], []
    while True:
        begin = starts[-1]
        stop = max(begin + 1, int(np.searchsorted(ends, firsts[begin] + room, side="right")))
        stops.append(stop)
        if stop == len(spans):
            break
        # The next window starts a stride later, or later still to include the first unit that is not covered yet.
        least = int(np.searchsorted(firsts, max(firsts[begin] + stride, ends[stop] - room), side="left"))
        starts.append(min(max(least, begin + 1), stop))
    borders = [0, *((after + stop) // 2 for after, stop in zip(starts[1:], stops[:-1], strict=True)), len(spans)]
    return [
        Window(start, stop, first, last, (int(firsts[start]), int(min(ends[stop - 1], firsts[start] + room))))
        for start, stop, first, last in zip(starts, stops, borders[:-1], borders[1:], strict=True)
    ]


def columns(spans: NDArray[np.int64], window: Window, *, units: tuple[int, int]) -> NDArray[np.int64]:
    """(u, 2) first and last piece, relative to the window and truncated, of the units in `units`, end exclusive."""
    begin, end = window.pieces
    return np.minimum(spans[slice(*units)], end - 1) - begin
