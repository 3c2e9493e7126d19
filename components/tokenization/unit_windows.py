"""Overlapping windows over texts that exceed the maximum length of a sequence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Window:
    """A window over a text's units.

    Attributes:
        start, end: the units in the window, end exclusive.
        first, last: the units that are predicted in this window, end exclusive. Each unit is predicted in one window,
            the one with the most context on both sides.
        pieces: range of the text's pieces in the window, end exclusive.
    """

    start: int
    end: int
    first: int
    last: int
    pieces: tuple[int, int]


def cut(spans: NDArray[np.int64], *, room: int, stride: int) -> list[Window]:
    """Windows that cover all units of a text.

    Args:
        spans: (U, 2) indices of each unit's first and last piece, ascending; U >= 1.
        room: maximum number of pieces of a window. A longer unit is a window of its own, with its first pieces.
        stride: minimum number of pieces between the starts of two windows; less only if a unit would be skipped.
    """
    firsts, ends = spans[:, 0], spans[:, 1] + 1
    starts, stops = [0], []
    while True:
        begin = starts[-1]
        stop = max(begin + 1, int(np.searchsorted(ends, firsts[begin] + room, side="right")))
        stops.append(stop)
        if stop == len(spans):
            break
        # The next window starts a stride later, or later still to include the first unit that is not covered yet.
        least = int(np.searchsorted(firsts, max(firsts[begin] + stride, ends[stop] - room), side="left"))
        starts.append(min(max(least, begin + 1), stop))
    borders = [0, *((after + stop) // 2 for after, stop in zip(starts[1:], stops[:-1], strict=True)), len(spans)]
    return [
        Window(start, stop, first, last, (int(firsts[start]), int(min(ends[stop - 1], firsts[start] + room))))
        for start, stop, first, last in zip(starts, stops, borders[:-1], borders[1:], strict=True)
    ]


def columns(spans: NDArray[np.int64], window: Window, *, units: tuple[int, int]) -> NDArray[np.int64]:
    """(u, 2) indices of the first and last piece, relative to the window, of the units from `units[0]` to `units[1]`
    (exclusive); units that exceed the window are truncated."""
    begin, end = window.pieces
    return np.minimum(spans[slice(*units)], end - 1) - begin
