"""Words of a text without annotation, and the words that spans of characters cover."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import regex

from components.data.formats.tags import Span, encode
from components.data.segmenters import Segmentation

#: Characters of scripts without spaces between words. Thai has a dictionary (`words_of`).
UNSPACED: Final = r"[[\p{Han}\p{Hiragana}\p{lb=SA}]--\p{Thai}]"
CHARACTER: Final = rf"(?={UNSPACED})\X\p{{M}}*+"
_LETTERS: Final = rf"[[\p{{L}}\p{{M}}\p{{N}}_]--{UNSPACED}]++"
#: A word: a run of letters, marks, digits and underscores, and joiners within it; in scripts without spaces one
#: character with its marks.
WORD: Final = rf"{CHARACTER}|{_LETTERS}(?:[\u200c\u200d]++{_LETTERS})*+"
_WORD = regex.compile(WORD, regex.VERSION1)
#: The same for ASCII, which is most text.
_ASCII_WORD = re.compile(r"\w+")
_PATTERNS: Final = {
    "none": (_ASCII_WORD, _WORD),
    "apart": (re.compile(r"\w+|[^\w\s]"), regex.compile(rf"{WORD}|[^\s]", regex.VERSION1)),
    "joined": (re.compile(r"\S+"), regex.compile(rf"{CHARACTER}|[[^\s]--{UNSPACED}]++", regex.VERSION1)),
}


def words(text: str) -> list[str]:
    """The words of a text in any language, without punctuation; Thai is not segmented."""
    result: list[str] = (_ASCII_WORD if text.isascii() else _WORD).findall(text)
    return result


def word_bounds(
    text: str, cuts: Iterable[int] = (), *, marks: Literal["apart", "joined", "none"] = "apart"
) -> list[tuple[int, int]]:
    """(start, end) of the words of a text.

    Args:
        cuts: positions at which a word ends although no space follows, ascending (languages without spaces).
        marks: other characters, such as punctuation marks: each is a word (`apart`), they are part of the words beside
            them (`joined`), or of none.
    """
    pattern = _PATTERNS[marks][not text.isascii()]
    return list(_cut((match.span() for match in pattern.finditer(text)), iter(cuts)))


_SEGMENTATION: Final = Segmentation("auto")


def words_of(
    text: str, segmentation: Segmentation = _SEGMENTATION, *, marks: Literal["apart", "joined", "none"] = "apart"
) -> list[tuple[int, int]]:
    """(start, end) of the words of a text that no tool has split: at white space and punctuation, in Thai by a
    dictionary, in other languages without spaces at every character."""
    segmenter = segmentation.choose(text)
    return word_bounds(text, segmenter.cuts(text) if segmenter else (), marks=marks)


def _cut(bounds: Iterable[tuple[int, int]], cuts: Iterator[int]) -> Iterator[tuple[int, int]]:
    cut = next(cuts, None)
    for start, end in bounds:
        while cut is not None and cut < end:
            if start < cut:
                yield start, cut
                start = cut
            cut = next(cuts, None)
        yield start, end


def covered(bounds: Sequence[tuple[int, int]], spans: Iterable[tuple[int, int, str]]) -> tuple[list[str], Counter[str]]:
    """BIO tags of words, and how often spans do not fit them.

    A word belongs to a span that it shares a character with. Of spans that share a word the longest counts. Returns W
    tags; and counts of `spans_within_words`, `spans_overlapping` and `spans_without_word`.
    """
    counts: Counter[str] = Counter()
    taken: set[int] = set()
    kept: list[Span] = []
    for start, end, label in sorted(spans, key=lambda span: (span[0] - span[1], span)):
        words = [index for index, (first, last) in enumerate(bounds) if first < end and start < last]
        if not words:
            counts["spans_without_word"] += 1
        elif taken & set(words):
            counts["spans_overlapping"] += 1
        else:
            counts["spans_within_words"] += bounds[words[0]][0] < start or end < bounds[words[-1]][1]
            taken |= set(words)
            kept.append((words[0], words[-1] + 1, label))
    return encode(sorted(kept), len(bounds), "bio"), +counts


def spans_of(bounds: Sequence[tuple[int, int]], spans: Iterable[Span]) -> list[tuple[int, int, str]]:
    """Spans of words as spans of characters."""
    return [(bounds[first][0], bounds[last - 1][1], label) for first, last, label in spans]
