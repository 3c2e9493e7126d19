"""Words of a text without annotation, the words that spans of characters cover, and their tags in three schemes.

BIO (IOB2, Ratnaparkhi 1998): B- on the first word of a span, I- on the others. IOB1 (Ramshaw and Marcus 1995): I-
throughout; B- only if a span directly follows another of the same type. IOBES: BIO with E- on the last word, and S- on
a span of one word. O is a word outside all spans.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import regex

from components.data.segmenters import Segmentation

OUTSIDE = "O"
#: Prefixes of the span type, by scheme.
PREFIXES = {"bio": "BI", "iob1": "BI", "iobes": "BIES"}
#: (first word, word after the last, type)
Span = tuple[int, int, str]


class TagError(ValueError):
    """A tag that violates its scheme; `index` is the index of its word."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


def decode(tags: Sequence[str], scheme: str) -> list[Span]:
    """The spans of a tag sequence, in order.

    Raises:
        TagError: a tag is unknown to the scheme or not allowed at its position.
    """
    other = f"correct it, or set the file's scheme ({', '.join(name for name in PREFIXES if name != scheme)})"
    spans: list[Span] = []
    # The span of the previous word: its start, its type, and whether it can continue (not after E or S).
    start, kind, is_open = 0, "", False
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, new = tag.partition("-") if tag != OUTSIDE else ("", "", "")
        if tag != OUTSIDE and not (new and prefix in tuple(PREFIXES[scheme])):
            kinds = ", ".join(f"{letter}-TYPE" for letter in PREFIXES[scheme])
            what = f"is not a tag of scheme {scheme} ({kinds}, {OUTSIDE}); set scheme: none if tags are not spans"
            raise TagError(index, f"tag {tag!r} {what}")
        continues = prefix in ("I", "E") and is_open and new == kind
        after = f"tag {tag!r} after {tags[index - 1]!r}" if index else f"tag {tag!r} at the start"
        if scheme == "iobes" and is_open and not continues:
            if index == len(tags):
                raise TagError(index - 1, f"tag {tags[-1]!r} at the end does not end its span; {other}")
            raise TagError(index, f"{after}, which does not end its span; {other}")
        if scheme == "iob1" and prefix == "B" and not (is_open and new == kind):
            raise TagError(index, f"tag {tag!r} follows no span of its type; {other}")
        if scheme != "iob1" and prefix in ("I", "E") and not continues:
            raise TagError(index, f"{after} continues no span of its type; {other}")
        if is_open and not continues:
            spans.append((start, index, kind))
        if prefix and not continues:
            start = index
        if prefix in ("E", "S"):
            spans.append((start, index + 1, new))
        kind, is_open = new, prefix in ("B", "I")
    return spans


def repaired(tags: Sequence[str], scheme: str) -> tuple[list[str], int]:
    """The tags of `bio` or `iob1` in which each span begins as its scheme says, and how many began otherwise.

    In `bio` an I without its span before it begins one, as conlleval reads it; in `iob1` a B does. Other tags
    are as given."""
    result, before = list(tags), OUTSIDE
    for index, tag in enumerate(tags):
        prefix, _, kind = tag.partition("-")
        if before.partition("-")[2] != kind and (scheme, prefix) in (("bio", "I"), ("iob1", "B")):
            result[index] = f"{'B' if scheme == 'bio' else 'I'}-{kind}"
        before = tag
    return result, sum(new != old for new, old in zip(result, tags, strict=True))


def scheme_of(sentences: Iterable[Sequence[str]]) -> str:
    """The scheme of the tags of sentences; `none` if they mark no spans.

    Between `bio` and `iob1`, the letter decides with which most spans begin that follow no span of their type."""
    begins: Counter[str] = Counter()
    prefixes: set[str] = set()
    for tags in sentences:
        before = ""
        for tag in tags:
            prefix, separator, kind = tag.partition("-")
            if tag != OUTSIDE and not (separator and kind and prefix in (*"BIESLU",)):
                return "none"
            prefixes.add(prefix)
            begins[prefix] += kind != before
            before = kind
    if not prefixes - {OUTSIDE}:
        return "none"
    if prefixes & {"E", "S"}:
        return "iobes"
    return "bio" if begins["B"] >= begins["I"] and "B" in prefixes else "iob1"


def encode(spans: Iterable[Span], words: int, scheme: str) -> list[str]:
    """The tags of a sentence of `words` words; spans are in order and do not overlap."""
    tags = [OUTSIDE] * words
    before: Span = (0, 0, "")
    for span in spans:
        start, end, kind = span
        tags[start:end] = [f"I-{kind}"] * (end - start)
        if scheme != "iob1" or (before[1], before[2]) == (start, kind):
            tags[start] = f"B-{kind}"
        if scheme == "iobes":
            tags[end - 1] = f"{'S' if end - start == 1 else 'E'}-{kind}"
        before = span
    return tags


def convert(tags: Sequence[str], scheme: str, to: str) -> list[str]:
    """The tags of the same spans in another scheme.

    Raises:
        TagError: see `decode`.
    """
    return encode(decode(tags, scheme), len(tags), to)


def inventory(kinds: Iterable[str], scheme: str) -> list[str]:
    """All tags of spans of the given types, sorted, including O."""
    return sorted([OUTSIDE, *(f"{letter}-{kind}" for kind in kinds for letter in PREFIXES[scheme])])


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


_SEGMENTATION: Final = Segmentation("auto")


def words_of(
    text: str, segmentation: Segmentation = _SEGMENTATION, *, marks: Literal["apart", "joined", "none"] = "apart"
) -> list[tuple[int, int]]:
    """(start, end) of the words of a text that no tool has split: at white space and punctuation, in Thai by a
    dictionary, in other languages without spaces at every character.

    Args:
        marks: other characters, such as punctuation marks: each is a word (`apart`), they are part of the words beside
            them (`joined`), or of none.
    """
    segmenter = segmentation.choose(text)
    bounds = (match.span() for match in _PATTERNS[marks][not text.isascii()].finditer(text))
    return list(_cut(bounds, segmenter.cuts(text) if segmenter else iter(())))


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
