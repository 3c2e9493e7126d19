"""Entity spans from tags, by the strict definition.

A tag is `O`, or a prefix and a type joined by a hyphen (`B-LOC`). The schemes:

BIO    (IOB2) a span is B-X (I-X)*; an I-X that follows neither B-X nor I-X belongs to no span
IOB1   a span is (I-X)+, and begins with B-X where it touches a span of the same type before it
IOBES  (BILOU: L for E, U for S) a span is S-X, or B-X (I-X)* E-X; whatever does not end in E-X is no span

So a sequence that breaks its scheme has fewer spans, not mended ones. Which tag may stand next to which is a matter of
two neighbours, so spans are found for all rows at once. (seqeval's strict mode is the same, tag by tag.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Scheme = Literal["none", "BIO", "IOB1", "IOBES"]
OUTSIDE = "O"

O, B, I, E, S = range(5)  # noqa: E741 -- the field's letters
_PREFIXES = {"B": B, "I": I, "E": E, "S": S, "L": E, "U": S}
_TAG = re.compile(r"([BIESLU])-(.+)", re.DOTALL)


@dataclass(frozen=True)
class Spans:
    """Spans of many rows, each (S,), in their order: row, place of the first unit, place after the last, type."""

    rows: Integers
    starts: Integers
    ends: Integers
    types: Integers

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Tags:
    """What the names of a task's tags say.

    Attributes:
        scheme: `none` where tags are no spans (parts of speech).
        types: names of the span types, sorted.
        prefixes: (C,) prefix of each tag.
        type_of: (C,) number of each tag's type; -1 for `O`.
    """

    scheme: Scheme
    types: list[str]
    prefixes: Integers
    type_of: Integers

    def spans(self, tags: Integers, lengths: Integers) -> Spans:
        """The spans of N rows.

        Args:
            tags: tag numbers of all rows, one row after the other.
            lengths: (N,) units of each row.
        """
        # A unit outside of everything between two rows: no span goes over it.
        ends = np.cumsum(lengths)
        place = np.arange(len(tags)) + np.repeat(np.arange(len(lengths)), lengths) + 1
        prefix = np.full(len(tags) + len(lengths) + 1, O, dtype=np.int64)
        kind = np.full(len(prefix), -1, dtype=np.int64)
        prefix[place], kind[place] = self.prefixes[tags], self.type_of[tags]
        before, now, same = prefix[:-1], prefix[1:], kind[:-1] == kind[1:]
        if self.scheme == "IOBES":
            begins = (now == B) | (now == S)
            inside = same & ((before == B) | (before == I)) & ((now == I) | (now == E))
            stops = (before == E) | (before == S)
        elif self.scheme == "IOB1":
            goes_on = same & ((before == B) | (before == I))
            inside = goes_on & (now == I)
            begins = ((now == I) & ~goes_on) | ((now == B) & goes_on)
            # After a B-X that begins nothing, I-X does.
            begins |= inside & (before == B) & ~np.concatenate([[False], begins[:-1]])
            stops = (before != O) & ~((before == B) & (now == B) & ~same)
        else:
            begins = now == B
            inside = same & ((before == B) | (before == I)) & (now == I)
            stops = (before == B) | (before == I)
        # Places count from 1 here, as 0 is before the first unit.
        first = np.flatnonzero(begins) + 1
        outside = np.flatnonzero(~inside) + 1
        last = outside[np.searchsorted(outside, first + 1)]
        whole = stops[last - 1]
        first, last = first[whole], last[whole]
        rows = np.searchsorted(ends + np.arange(len(lengths)) + 1, first)
        shift = (ends - lengths + np.arange(len(lengths)) + 1)[rows]
        return Spans(rows, first - shift, last - shift, kind[first])


def read_tags(labels: Sequence[str], *, scheme: Scheme | None = None) -> Tags:
    """Read the names of tags.

    Args:
        labels: C names.
        scheme: of the tags; None: read off their prefixes. Where a name other than `O` has none, it is `none`; with a
            prefix E, S, L or U it is IOBES, with I alone IOB1, otherwise BIO.
    """
    found = [_TAG.fullmatch(label) for label in labels]
    if scheme is None:
        letters = {match[1] for match in found if match}
        if not letters or any(not match and label != OUTSIDE for match, label in zip(found, labels, strict=True)):
            scheme = "none"
        elif letters & set("ESLU"):
            scheme = "IOBES"
        else:
            scheme = "BIO" if "B" in letters else "IOB1"
    if scheme == "none":
        found = [None] * len(found)
    types = sorted({match[2] for match in found if match})
    return Tags(
        scheme,
        types,
        np.asarray([_PREFIXES[match[1]] if match else O for match in found], dtype=np.int64),
        np.asarray([types.index(match[2]) if match else -1 for match in found], dtype=np.int64),
    )
