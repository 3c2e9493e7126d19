"""Encoding of pre-split texts (tagging): each word is encoded separately, as in the middle of a text.

The alignment of pieces and words is exact, because no piece crosses a word boundary.
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
    """A text of W words as P pieces, without special pieces.

    Attributes:
        ids: (P,) int64.
        spans: (W, 2) int64, indices of the first and the last piece of each word. A piece in no span is a space between
            words (character vocabularies).
    """

    ids: NDArray[np.int64]
    spans: NDArray[np.int64]


def encode_words(tokenizer: Tokenizer, texts: Sequence[Sequence[str]]) -> list[WordPieces]:
    """Encode pre-split texts; every distinct word is encoded once.

    Words are encoded as in the middle of a text: with a leading space if it is part of the word (byte-level BPE,
    unigram), or separated by a space piece (characters). Words of languages without spaces (Thai) are not separated,
    unless the tokenizer's segmentation inserts spaces. A word without pieces (control characters) becomes UNK.

    Args:
        tokenizer: of any kind.
        texts: words of each text.
    """
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
    """For each word, whether it follows the previous word without a space."""
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
