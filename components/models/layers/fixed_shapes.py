"""A mode in which the shapes of all tensors depend on the shape of the batch alone, not on its content.

Layers save work by leaving out padding or by computing repeated words once, which makes the sizes of their matrix
products depend on the whole batch. Libraries choose kernels by size, and kernels differ in the last bits. In this mode
layers do not save such work, so that the result of a row does not depend on the other rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STATE = threading.local()


def is_fixed() -> bool:
    """Whether the mode is on in this thread."""
    return bool(getattr(_STATE, "on", False))


@contextmanager
def fixed_shapes() -> Iterator[None]:
    """A block in which the mode is on, in this thread."""
    before = is_fixed()
    _STATE.on = True
    try:
        yield
    finally:
        _STATE.on = before
