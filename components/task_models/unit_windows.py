"""A text that is longer than what an encoder reads at once, in windows that overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Window:
    """Some of a text's units.

    Attributes:
        start, end: the units that are read, end exclusive.
        first, last: those of them that it answers for, end exclusive: each unit belongs to one window, the one in which
            more stands on both of its sides.
        pieces: the columns of the text's pieces that are read, end exclusive.
    """

    start: int
    end: int
    first: int
    last: int
    pieces: tuple[int, int]


def cut(spans: NDArray[np.int64], *, room: int, stride: int) -> list[Window]:
    """Windows over a text's units, from its beginning; together they read every unit.

    Args:
        spans: (U, 2) columns of each unit's first and last piece, in the text's pieces; ascending, U 1 or more.
        room: pieces that a window holds at most. A unit that is longer is a window by itself, of its first pieces.
        stride: pieces between the beginnings of two windows, if units are small; no unit is skipped for it.
    """
    firsts, ends = spans[:, 0], spans[:, 1] + 1
    starts, stops = [0], []
    while True:
        begin = starts[-1]
        stop = max(begin + 1, int(np.searchsorted(ends, firsts[begin] + room, side="right")))
        stops.append(stop)
        if stop == len(spans):
            break
        # The next one begins a stride further, but reads the first unit that is still unread.
        least = int(np.searchsorted(firsts, max(firsts[begin] + stride, ends[stop] - room), side="left"))
        starts.append(min(max(least, begin + 1), stop))
    borders = [0, *((after + stop) // 2 for after, stop in zip(starts[1:], stops[:-1], strict=True)), len(spans)]
    return [
        Window(start, stop, first, last, (int(firsts[start]), int(min(ends[stop - 1], firsts[start] + room))))
        for start, stop, first, last in zip(starts, stops, borders[:-1], borders[1:], strict=True)
    ]


def columns(spans: NDArray[np.int64], window: Window, *, units: tuple[int, int]) -> NDArray[np.int64]:
    """(u, 2) columns, in a window's own pieces, of the units from `units[0]` to `units[1]`; what a long unit has beyond
    the window is left out."""
    begin, end = window.pieces
    return np.minimum(spans[slice(*units)], end - 1) - begin
