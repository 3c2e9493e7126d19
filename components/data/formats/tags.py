"""Span encoding by word tags in three schemes: decoding, encoding, conversion.

BIO (IOB2, Ratnaparkhi 1998): B- on the first word of a span, I- on the others. IOB1 (Ramshaw and Marcus 1995): I-
throughout; B- only if a span directly follows another of the same type. IOBES: BIO with E- on the last word, and S- on
a span of one word. O is a word outside all spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    spans: list[Span] = []
    # The span of the previous word: its start, its type, and whether it can continue (not after E or S).
    start, kind, is_open = 0, "", False
    for index, tag in enumerate(tags):
        prefix, new = _parts(index, tag, scheme)
        continues = prefix in ("I", "E") and is_open and new == kind
        if scheme == "iobes" and is_open and not continues:
            raise TagError(
                index, f"tag {tag!r} after {tags[index - 1]!r}, which does not end its span; {_other(scheme)}"
            )
        if scheme == "iob1":
            if prefix == "B" and not (is_open and new == kind):
                raise TagError(index, f"tag {tag!r} follows no span of its type; {_other(scheme)}")
        elif prefix in ("I", "E") and not continues:
            after = f"after {tags[index - 1]!r}" if index else "at the start"
            raise TagError(index, f"tag {tag!r} {after} continues no span of its type; {_other(scheme)}")
        if is_open and not continues:
            spans.append((start, index, kind))
        if prefix and not continues:
            start = index
        if prefix in ("E", "S"):
            spans.append((start, index + 1, new))
        kind, is_open = new, prefix in ("B", "I")
    if is_open:
        if scheme == "iobes":
            raise TagError(len(tags) - 1, f"tag {tags[-1]!r} at the end does not end its span; {_other(scheme)}")
        spans.append((start, len(tags), kind))
    return spans


def _parts(index: int, tag: str, scheme: str) -> tuple[str, str]:
    """Prefix and type of a tag; two empty strings for O."""
    if tag == OUTSIDE:
        return "", ""
    prefix, separator, kind = tag.partition("-")
    if not separator or not kind or prefix not in tuple(PREFIXES[scheme]):
        kinds = ", ".join(f"{letter}-TYPE" for letter in PREFIXES[scheme])
        raise TagError(
            index,
            f"tag {tag!r} is not a tag of scheme {scheme} ({kinds}, {OUTSIDE}); set scheme: none if tags are not spans",
        )
    return prefix, kind


def _other(scheme: str) -> str:
    return f"correct it, or set the file's scheme ({', '.join(name for name in PREFIXES if name != scheme)})"


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
