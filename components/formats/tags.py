"""Spans as tags of words, in the three usual ways, and from one to another.

BIO (IOB2, Ratnaparkhi 1998): B- begins a span, I- goes on. IOB1 (Ramshaw and Marcus 1995): I- throughout, B- only where
a span follows another of its type. IOBES: as BIO, with E- on the last word and S- on a span of one word. O: no span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

OUTSIDE = "O"
#: What may stand before the type, by scheme.
PREFIXES = {"bio": "BI", "iob1": "BI", "iobes": "BIES"}
#: (first word, word after the last, type)
Span = tuple[int, int, str]


class TagError(ValueError):
    """A tag that breaks its scheme; `index` is the word's, the message says why."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


def decode(tags: Sequence[str], scheme: str) -> list[Span]:
    """The spans that `tags` mark, in order, read strictly.

    Raises:
        TagError: a tag that the scheme does not know or that must not stand where it does.
    """
    spans: list[Span] = []
    # Of the span that the word before belongs to: where it began, its type; it may go on (not after E or S).
    start, kind, is_open = 0, "", False
    for index, tag in enumerate(tags):
        prefix, new = _parts(index, tag, scheme)
        goes_on = prefix in ("I", "E") and is_open and new == kind
        if scheme == "iobes" and is_open and not goes_on:
            raise TagError(
                index, f"tag {tag!r} after {tags[index - 1]!r}, which does not end its span; {_other(scheme)}"
            )
        if scheme == "iob1":
            if prefix == "B" and not (is_open and new == kind):
                raise TagError(index, f"tag {tag!r} follows no span of its type; {_other(scheme)}")
        elif prefix in ("I", "E") and not goes_on:
            after = f"after {tags[index - 1]!r}" if index else "at the start"
            raise TagError(index, f"tag {tag!r} {after} goes on with no span of its type; {_other(scheme)}")
        if is_open and not goes_on:
            spans.append((start, index, kind))
        if prefix and not goes_on:
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
    """Prefix and type; two empty texts outside of spans."""
    if tag == OUTSIDE:
        return "", ""
    prefix, separator, kind = tag.partition("-")
    if not separator or not kind or prefix not in tuple(PREFIXES[scheme]):
        known = ", ".join(f"{letter}-TYPE" for letter in PREFIXES[scheme])
        raise TagError(
            index,
            f"tag {tag!r} is no tag of scheme {scheme} ({known}, {OUTSIDE}); set scheme: none where tags mark no spans",
        )
    return prefix, kind


def _other(scheme: str) -> str:
    return f"correct it, or name the file's scheme ({', '.join(name for name in PREFIXES if name != scheme)})"


def encode(spans: Iterable[Span], words: int, scheme: str) -> list[str]:
    """The tags of `words` words with these spans, which are in order and do not overlap."""
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
    """The same spans in another scheme.

    Raises:
        TagError: as `decode`.
    """
    return encode(decode(tags, scheme), len(tags), to)


def inventory(kinds: Iterable[str], scheme: str) -> list[str]:
    """Every tag that spans of these types can have, sorted as text, O among them."""
    return sorted([OUTSIDE, *(f"{letter}-{kind}" for kind in kinds for letter in PREFIXES[scheme])])
