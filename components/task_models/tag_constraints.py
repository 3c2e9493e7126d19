"""Legal transitions between tags, from their names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from components.models.layers.crf import Legal
from components.scoring.spans import B, E, I, O, S, Tags, read_tags


def legal_transitions(labels: Sequence[str]) -> Legal:
    """The starts, transitions and ends that the tagging scheme allows (`components.scoring.spans`); without one, all.

    BIO: I follows B or I of its type. IOB1: B follows B or I of its type, to separate two spans. IOBES: a span is S, or
    B, any number of I, and E of one type; it must be complete.
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
    """(before, after) bool: whether a tag of `after` may follow a tag of `before`."""
    first, then = before.prefixes[:, None], after.prefixes[None, :]
    open_ = ((first == B) | (first == I)) & (before.type_of[:, None] == after.type_of[None, :])
    if before.scheme == "IOB1":
        return open_ | (then != B)
    continues = open_ & ((then == I) | (then == E))
    begins = (then == O) | (then == B) | (then == S)
    if before.scheme == "IOBES":
        begins = begins & ((first == O) | (first == E) | (first == S))
    return continues | begins
