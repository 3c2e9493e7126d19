"""Texts that are given as words (tagging): each word by itself into the pieces that it has in the middle of a text.

Which pieces belong to which word is then exact: no piece goes across two words, whatever the tokenizer would join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from components.tokenization.base import Tokenizer
from components.tokenization.segmenters import SEGMENTERS
from components.tokenization.special import UNK

_UNKNOWN: Final = np.asarray([UNK], dtype=np.int64)


@dataclass(frozen=True)
class WordPieces:
    """A text of W words as P pieces, without special ones.

    Attributes:
        ids: (P,) int64.
        spans: (W, 2) int64, places of the first and the last piece of each word. What stands in none is the space
            between two words, where a vocabulary has pieces for it (characters).
    """

    ids: NDArray[np.int64]
    spans: NDArray[np.int64]


def encode_words(tokenizer: Tokenizer, texts: Sequence[Sequence[str]]) -> list[WordPieces]:
    """The pieces of texts that are given as words; every different word is encoded once.

    A word is encoded as it stands in the middle of a text: with the space before it where that belongs to the word
    (byte-level BPE, unigram), and with a space between it and the word before where a space is a piece (characters).
    Two words of a language that is written without spaces (Thai) get none, unless the tokenizer's segmentation puts
    spaces between words itself. A word of which no piece is left (control characters) is one unknown piece.
    """
    glued = [_without_space(tokenizer, words) for words in texts]
    forms = [
        [word if joined or not tokenizer.leads_with_space else f" {word}" for word, joined in zip(*row, strict=True)]
        for row in zip(texts, glued, strict=True)
    ]
    distinct = dict.fromkeys(form for row in forms for form in row)
    encoded = dict(zip(distinct, tokenizer.encode_batch(list(distinct)), strict=True))
    space = np.asarray([] if tokenizer.leads_with_space else tokenizer.encode_batch([" "])[0], dtype=np.int64)
    return [_joined([encoded[form] for form in row], joined, space) for row, joined in zip(forms, glued, strict=True)]


def _without_space(tokenizer: Tokenizer, words: Sequence[str]) -> list[bool]:
    """For each word whether it stands directly behind the one before it."""
    segments = tokenizer.segmentation.name != "none"
    # Where segmentation marks its cuts with spaces, the pieces are those of spaced words.
    if not segments or (tokenizer.segmented and tokenizer.separator == " "):
        return [False] * len(words)
    scripts = [segmenter.script for segmenter in SEGMENTERS.values()]
    return [False] * len(words[:1]) + [
        any(script.match(before[-1:]) and script.match(word[:1]) for script in scripts)
        for before, word in pairwise(words)
    ]


def _joined(words: Sequence[NDArray[np.int32]], glued: Sequence[bool], space: NDArray[np.int64]) -> WordPieces:
    parts: list[NDArray[np.int64]] = []
    spans = np.zeros((len(words), 2), dtype=np.int64)
    place = 0
    for index, (ids, joined) in enumerate(zip(words, glued, strict=True)):
        if index and not joined and len(space):
            parts.append(space)
            place += len(space)
        pieces = ids.astype(np.int64) if len(ids) else _UNKNOWN
        parts.append(pieces)
        spans[index] = place, place + len(pieces) - 1
        place += len(pieces)
    return WordPieces(np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64), spans)
