"""Which tags may follow each other, read off their names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from components.models.layers.crf import Legal
from components.scoring.spans import B, E, I, O, S, Tags, read_tags


def legal_transitions(labels: Sequence[str]) -> Legal:
    """What the scheme of the tags allows (`components.scoring.spans`); without one, everything.

    BIO: an I goes on with a B or I of its type. IOB1: a B stands only behind a B or I of its type, with which its span
    would otherwise be one. IOBES: a span is S alone, or B, any number of I, and E, of one type, and it is ended.

    Args:
        labels: C names of tags.
    """
    tags = read_tags(labels)
    count = len(labels)
    if tags.scheme == "none":
        every = torch.ones(count, dtype=torch.bool)
        return Legal(every, torch.ones(count, count, dtype=torch.bool), every.clone())
    outside = Tags(tags.scheme, tags.types, np.asarray([O]), np.asarray([-1]))
    return Legal(
        torch.from_numpy(_allowed(outside, tags)[0]),
        torch.from_numpy(_allowed(tags, tags)),
        torch.from_numpy(_allowed(tags, outside)[:, 0]),
    )


def _allowed(before: Tags, after: Tags) -> np.ndarray:
    """(len(before), len(after)) bool: whether the latter may follow the former."""
    first, then = before.prefixes[:, None], after.prefixes[None, :]
    open_ = ((first == B) | (first == I)) & (before.type_of[:, None] == after.type_of[None, :])
    if before.scheme == "IOB1":
        return open_ | (then != B)
    goes_on = open_ & ((then == I) | (then == E))
    begins = (then == O) | (then == B) | (then == S)
    if before.scheme == "IOBES":
        begins = begins & ((first == O) | (first == E) | (first == S))
    return goes_on | begins
