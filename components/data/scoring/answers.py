"""The decision whether to answer a question: a span, or none, by a threshold of the difference of their scores."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Score of a span in a window without context, and threshold with which a span is always predicted.
NEVER: Final = -1e4


def best_threshold(margin: NDArray[np.float64], given: NDArray[np.float64], refused: NDArray[np.float64]) -> float:
    """The minimum margin (N,) of the best span over no answer that maximises the sum of scores, from the metric of each
    row with the span (`given`) and without (`refused`): the midpoint between two rows, at a tie the closest to 0;
    `NEVER` if answering always is optimal."""
    different, place = np.unique(margin, return_inverse=True)
    cuts = np.asarray([NEVER, *(different[:-1] + different[1:]) / 2, different[-1] + 1.0])
    # A cut refuses the rows of all margins below it.
    totals = given.sum() + np.append(0.0, np.cumsum(np.bincount(place, refused - given)))
    best = totals.max() - 1e-9
    if totals[0] >= best:
        return NEVER
    result = cuts[totals >= best]
    return float(result[np.abs(result).argmin()])


def apply_threshold(raw: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """(N, 4) answers -> N answers; [0, 0, ...] where the score of no answer exceeds the span's."""
    return [refused(row) if row[3] > row[2] else row for row in raw]


def refused(row: NDArray[np.float32]) -> NDArray[np.float32]:
    """The answer (4,) without its span."""
    return np.asarray([0, 0, row[2], row[3]], dtype=np.float32)
