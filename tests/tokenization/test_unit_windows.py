"""Windows over units: every unit is covered, and predicted once, with maximum context."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from components.tokenization.words import columns, cut


def spans_of(*sizes: int, gap: int = 0) -> NDArray[np.int64]:
    starts = np.cumsum([0, *(size + gap for size in sizes[:-1])])
    return np.stack([starts, starts + np.asarray(sizes) - 1], axis=1)


def test_a_unit_longer_than_a_window_is_truncated():
    spans = spans_of(1, 9, 1, 1)
    found = cut(spans, room=4, stride=2)
    assert [(window.start, window.end) for window in found] == [(0, 1), (1, 2), (2, 4)]
    assert [window.pieces for window in found] == [(0, 1), (1, 5), (10, 12)]
    assert columns(spans, found[1], units=(1, 2)).tolist() == [[0, 3]]
    assert columns(spans, found[2], units=(2, 4)).tolist() == [[0, 0], [1, 1]]


def test_a_stride_wider_than_a_window_skips_no_unit():
    found = cut(spans_of(*[1] * 7), room=3, stride=100)
    assert [(window.start, window.end) for window in found] == [(0, 3), (3, 6), (6, 7)]


@pytest.mark.parametrize("seed", range(5))
def test_every_unit_is_predicted_once(seed):
    rng = np.random.default_rng(seed)
    spans = spans_of(*rng.integers(1, 7, size=rng.integers(1, 60)), gap=int(rng.integers(0, 2)))
    room, stride = int(rng.integers(1, 20)), int(rng.integers(1, 20))
    found = cut(spans, room=room, stride=stride)
    assert found[0].start == 0 and found[-1].end == len(spans)
    assert [unit for window in found for unit in range(window.first, window.last)] == list(range(len(spans)))
    for window in found:
        assert window.start <= window.first < window.last <= window.end
        assert window.pieces[1] - window.pieces[0] <= room
        indices = columns(spans, window, units=(window.first, window.last))
        assert (indices >= 0).all() and (indices[:, 0] <= indices[:, 1]).all()
        assert indices.max() < window.pieces[1] - window.pieces[0]
    for before, after in itertools.pairwise(found):
        assert before.start < after.start <= before.end < after.end
