"""Windows over units: every unit is covered, and predicted once, with maximum context."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from components.tokenization.words import Window, columns, cut


def spans_of(*sizes: int, gap: int = 0) -> NDArray[np.int64]:
    starts = np.cumsum([0, *(size + gap for size in sizes[:-1])])
    return np.stack([starts, starts + np.asarray(sizes) - 1], axis=1)


def test_a_unit_longer_than_a_window_is_truncated():
    spans = spans_of(1, 9, 1, 1)
    actual = cut(spans, room=4, stride=2)
    assert [(window.start, window.end) for window in actual] == [(0, 1), (1, 2), (2, 4)]
    assert [window.pieces for window in actual] == [(0, 1), (1, 5), (10, 12)]
    assert columns(spans, actual[1], units=(1, 2)).tolist() == [[0, 3]]
    assert columns(spans, actual[2], units=(2, 4)).tolist() == [[0, 0], [1, 1]]


def test_a_stride_wider_than_a_window_skips_no_unit():
    actual = cut(spans_of(*[1] * 7), room=3, stride=100)
    assert [(window.start, window.end) for window in actual] == [(0, 3), (3, 6), (6, 7)]


@pytest.mark.parametrize("seed", range(5))
def test_every_unit_is_predicted_once(seed):
    rng = np.random.default_rng(seed)
    spans = spans_of(*rng.integers(1, 7, size=rng.integers(1, 60)), gap=int(rng.integers(0, 2)))
    room, stride = int(rng.integers(1, 20)), int(rng.integers(1, 20))
    actual = cut(spans, room=room, stride=stride)
    assert actual[0].start == 0 and actual[-1].end == len(spans)
    assert [unit for window in actual for unit in range(window.first, window.last)] == list(range(len(spans)))
    for window in actual:
        assert window.start <= window.first < window.last <= window.end
        assert window.pieces[1] - window.pieces[0] <= room
        indices = columns(spans, window, units=(window.first, window.last))
        assert (indices >= 0).all() and (indices[:, 0] <= indices[:, 1]).all()
        assert indices.max() < window.pieces[1] - window.pieces[0]
    for before, after in itertools.pairwise(actual):
        assert before.start < after.start <= before.end < after.end


def test_a_text_that_fits_is_one_window():
    assert cut(spans_of(2, 1, 2), room=5, stride=2) == [Window(0, 3, 0, 3, (0, 5))]


def test_units_of_one_piece():
    actual = cut(spans_of(*[1] * 10), room=4, stride=2)
    assert [(window.start, window.end) for window in actual] == [(0, 4), (2, 6), (4, 8), (6, 10)]
    # The two units that two windows share are divided between them.
    assert [(window.first, window.last) for window in actual] == [(0, 3), (3, 5), (5, 7), (7, 10)]
    assert [window.pieces for window in actual] == [(0, 4), (2, 6), (4, 8), (6, 10)]
