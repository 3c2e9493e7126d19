"""Words of a text without annotation, and the words that spans of characters cover."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

from components.formats.tags import Span, encode


@cache
def _pattern() -> re.Pattern[str]:
    """Runs of letters, marks, digits and underscores, and every other character alone.

    Marks are added because `\\w` lacks them: vowels of Thai and Hindi are marks.
    """
    marks: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] == "M":
            if marks and marks[-1][1] == code - 1:
                marks[-1][1] = code
            else:
                marks.append([code, code])
    ranges = "".join(f"{chr(first)}-{chr(last)}" for first, last in marks)
    return re.compile(rf"[\w{ranges}]+|[^\s]")


_ASCII = re.compile(r"\w+|[^\w\s]")


def word_bounds(text: str, cuts: Iterable[int] = ()) -> list[tuple[int, int]]:
    """(start, end) of the words of a text, punctuation marks among them.

    Args:
        text: the text.
        cuts: positions at which a word ends although no space follows, ascending (languages without spaces).
    """
    found = [match.span() for match in (_ASCII if text.isascii() else _pattern()).finditer(text)]
    for cut in cuts:
        index = next((index for index, (start, end) in enumerate(found) if start < cut < end), None)
        if index is not None:
            start, end = found[index]
            found[index : index + 1] = [(start, cut), (cut, end)]
    return found


def covered(bounds: Sequence[tuple[int, int]], spans: Iterable[tuple[int, int, str]]) -> tuple[list[str], Counter[str]]:
    """BIO tags of words, and how often spans do not fit them.

    A word belongs to a span that it shares a character with. Of spans that share a word the longest counts.

    Args:
        bounds: (start, end) of W words.
        spans: (start, end, type) in characters.

    Returns:
        W tags; and counts of `spans_within_words`, `spans_overlapping` and `spans_without_word`.
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
