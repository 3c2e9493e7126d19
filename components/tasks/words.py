"""The words of a text that no tool has split, in any language."""

from __future__ import annotations

from components.formats.words import word_bounds
from components.tokenization.segmenters import Segmentation


def words_of(text: str) -> list[tuple[int, int]]:
    """(start, end) of the words of a text: at white space and punctuation, in languages without spaces by a dictionary.

    Training data and texts to predict are split alike.
    """
    segmenter = Segmentation("auto").choose(text)
    return word_bounds(text, segmenter.cuts(text) if segmenter else ())
