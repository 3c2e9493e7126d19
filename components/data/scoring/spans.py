"""Entity spans from tags, by the strict definition.

A tag is `O`, or a prefix and a type joined by a hyphen (`B-LOC`). The schemes:

BIO    (IOB2) a span is B-X (I-X)*; an I-X after neither B-X nor I-X belongs to no span
IOB1   a span is (I-X)+, or B-X (I-X)* directly after a span of the same type
IOBES  (BILOU: L for E, U for S) a span is S-X, or B-X (I-X)* E-X; a sequence without the final E-X is no span

Invalid sequences are not repaired: tags that violate the scheme belong to no span. The rules involve two adjacent tags
only, so the spans of all rows are found with array operations. The result equals the result of seqeval's strict mode.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

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
    """S spans of several rows, in order: index of the row, first unit, unit after the last, index of the type; (S,)."""

    rows: Integers
    starts: Integers
    ends: Integers
    types: Integers

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Tags:
    """The scheme of a task's tags, and the parts of their names.

    Attributes:
        scheme: `none` if tags mark no spans (parts of speech).
        prefixes: (C,) prefix of each tag.
        type_of: (C,) index of each tag's type; -1 for `O`.
    """

    scheme: Scheme
    types: list[str]
    prefixes: Integers
    type_of: Integers

    def spans(self, tags: Integers, lengths: Integers) -> Spans:
        """The spans of N rows. `tags`: tag indices of all rows, concatenated. `lengths`: (N,) units of each row."""
        # An O between two rows, so that no span crosses from one to the next.
        ends = np.cumsum(lengths)
        position = np.arange(len(tags)) + np.repeat(np.arange(len(lengths)), lengths) + 1
        prefix = np.full(len(tags) + len(lengths) + 1, O, dtype=np.int64)
        kind = np.full(len(prefix), -1, dtype=np.int64)
        prefix[position], kind[position] = self.prefixes[tags], self.type_of[tags]
        before, now, same = prefix[:-1], prefix[1:], kind[:-1] == kind[1:]
        if self.scheme == "IOBES":
            begins = (now == B) | (now == S)
            inside = same & ((before == B) | (before == I)) & ((now == I) | (now == E))
            stops = (before == E) | (before == S)
        elif self.scheme == "IOB1":
            continues = same & ((before == B) | (before == I))
            inside = continues & (now == I)
            begins = ((now == I) & ~continues) | ((now == B) & continues)
            # An I-X after an invalid B-X begins a span.
            begins |= inside & (before == B) & ~np.concatenate([[False], begins[:-1]])
            stops = (before != O) & ~((before == B) & (now == B) & ~same)
        else:
            begins = now == B
            inside = same & ((before == B) | (before == I)) & (now == I)
            stops = (before == B) | (before == I)
        # Positions count from 1, because position 0 is the O before the first row.
        first = np.flatnonzero(begins) + 1
        outside = np.flatnonzero(~inside) + 1
        last = outside[np.searchsorted(outside, first + 1)]
        whole = stops[last - 1]
        first, last = first[whole], last[whole]
        rows = np.searchsorted(ends + np.arange(len(lengths)) + 1, first)
        shift = (ends - lengths + np.arange(len(lengths)) + 1)[rows]
        return Spans(rows, first - shift, last - shift, kind[first])


class Transitions(NamedTuple):
    """Tags (C,) that may come first (`start`) and last (`end`), and whether j may follow i (`step` (C, C) [i, j])."""

    start: NDArray[np.bool_]
    step: NDArray[np.bool_]
    end: NDArray[np.bool_]


def legal_transitions(labels: Sequence[str]) -> Transitions:
    """The starts, transitions and ends that the tagging scheme allows; without one, all.

    BIO: I follows B or I of its type. IOB1: B follows B or I of its type, to separate two spans. IOBES: a span is S, or
    B, any number of I, and E of one type; it must be complete.
    """
    tags = read_tags(labels)
    if tags.scheme == "none":
        every = np.ones(len(labels), dtype=bool)
        return Transitions(every, np.ones((len(labels), len(labels)), dtype=bool), every)
    outside = Tags(tags.scheme, tags.types, np.asarray([O]), np.asarray([-1]))
    return Transitions(_allowed(outside, tags)[0], _allowed(tags, tags), _allowed(tags, outside)[:, 0])


def _allowed(before: Tags, after: Tags) -> NDArray[np.bool_]:
    first, then = before.prefixes[:, None], after.prefixes[None, :]
    open_ = ((first == B) | (first == I)) & (before.type_of[:, None] == after.type_of[None, :])
    if before.scheme == "IOB1":
        return open_ | (then != B)
    continues = open_ & ((then == I) | (then == E))
    begins = (then == O) | (then == B) | (then == S)
    if before.scheme == "IOBES":
        begins = begins & ((first == O) | (first == E) | (first == S))
    return continues | begins


def read_tags(labels: Sequence[str], *, scheme: Scheme | None = None) -> Tags:
    """Parse the names of tags.

    scheme: of the tags. None: inferred from the prefixes: `none` if a name other than `O` has no prefix, IOBES if
        there is a prefix E, S, L or U, IOB1 if I is the only one, else BIO.
    """
    matches = [_TAG.fullmatch(label) for label in labels]
    if scheme is None:
        letters = {match[1] for match in matches if match}
        if not letters or any(not match and label != OUTSIDE for match, label in zip(matches, labels, strict=True)):
            scheme = "none"
        elif letters & set("ESLU"):
            scheme = "IOBES"
        else:
            scheme = "BIO" if "B" in letters else "IOB1"
    if scheme == "none":
        matches = [None] * len(matches)
    types = sorted({match[2] for match in matches if match})
    return Tags(
        scheme,
        types,
        np.asarray([_PREFIXES[match[1]] if match else O for match in matches], dtype=np.int64),
        np.asarray([types.index(match[2]) if match else -1 for match in matches], dtype=np.int64),
    )
