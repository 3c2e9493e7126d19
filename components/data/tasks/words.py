"""The words of a text that no tool has split, in any language."""

from __future__ import annotations

from typing import Final, Literal

from components.data.formats.words import word_bounds
from components.data.segmenters import Segmentation

_SEGMENTATION: Final = Segmentation("auto")


def words_of(
    text: str, segmentation: Segmentation = _SEGMENTATION, *, marks: Literal["apart", "joined", "none"] = "apart"
) -> list[tuple[int, int]]:
    """(start, end) of the words of a text: at white space and punctuation, in Thai by a dictionary, in other languages
    without spaces at every character (`word_bounds`).

    Training data and texts to predict are split alike.
    """
    segmenter = segmentation.choose(text)
    return word_bounds(text, segmenter.cuts(text) if segmenter else (), marks=marks)
