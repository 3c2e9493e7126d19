"""Entity spans from tags, by the strict definition of CoNLL-2002.

A tag is `O`, or a prefix and a type joined by a hyphen (`B-LOC`). A span is B-X (I-X)*; an I-X after neither B-X nor
I-X belongs to no span. Files in another scheme are converted when they are read (`components.data.formats.words`).
The result equals the result of seqeval's strict mode.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
OUTSIDE = "O"

O, B, I = range(3)  # noqa: E741 -- the field's letters
_TAG = re.compile(r"([BI])-(.+)", re.DOTALL)


#: Index of the row, first unit, unit after the last, index of the type.
Span = tuple[int, int, int, int]


@dataclass(frozen=True)
class Tags:
    """The parts of the names of a task's tags.

    Attributes:
        types: of the spans; none if tags mark no spans (parts of speech).
        prefixes: (C,) prefix of each tag.
        type_of: (C,) index of each tag's type; -1 for `O`.
    """

    types: list[str]
    prefixes: Integers
    type_of: Integers

    def spans(self, tags: Integers, lengths: Integers) -> list[Span]:
        """The spans of N rows, in order. `tags`: tag indices of all rows, concatenated. `lengths`: (N,) units of each
        row."""
        prefixes, types, spans = self.prefixes.tolist(), self.type_of.tolist(), list[Span]()
        for row, numbers in enumerate(np.split(tags, np.cumsum(lengths)[:-1])):
            start, before = 0, -1
            for unit, tag in enumerate(numbers.tolist()):
                if prefixes[tag] == I and before == types[tag]:
                    spans[-1] = (row, start, unit + 1, before)
                elif prefixes[tag] == B:
                    start, before = unit, types[tag]
                    spans.append((row, start, unit + 1, before))
                else:
                    before = -1
        return spans


class Transitions(NamedTuple):
    """Tags (C,) that may come first (`start`) and last (`end`), and whether j may follow i (`step` (C, C) [i, j])."""

    start: NDArray[np.bool_]
    step: NDArray[np.bool_]
    end: NDArray[np.bool_]


def legal_transitions(labels: Sequence[str]) -> Transitions:
    """The starts, transitions and ends of whole spans: I follows B or I of its type. All if tags mark no spans."""
    tags = read_tags(labels)
    begins = tags.prefixes != I
    same = (tags.prefixes != O)[:, None] & (tags.type_of[:, None] == tags.type_of[None, :])
    return Transitions(begins, same | begins[None, :], np.ones(len(labels), dtype=bool))


def read_tags(labels: Sequence[str]) -> Tags:
    """Parse the names of tags. They mark spans if one begins a span, and all but `O` have a prefix and a type."""
    matches = [_TAG.fullmatch(label) for label in labels]
    marked = all(match or label == OUTSIDE for match, label in zip(matches, labels, strict=True))
    if not marked or not any(match and match[1] == "B" for match in matches):
        matches = [None] * len(matches)
    types = sorted({match[2] for match in matches if match})
    return Tags(
        types,
        np.asarray(["BI".index(match[1]) + 1 if match else O for match in matches], dtype=np.int64),
        np.asarray([types.index(match[2]) if match else -1 for match in matches], dtype=np.int64),
    )
