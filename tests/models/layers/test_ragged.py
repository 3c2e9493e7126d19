"""Windows without their padding: which positions remain, in which order, and which layers leave padding out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from components.models.layers.chunks import Texts
from components.models.layers.lstm_kernels import ragged

LENGTHS = torch.tensor([2, 4, 1])


@pytest.fixture
def window() -> Tensor:
    """Each position holds its step and its row."""
    return torch.tensor([[[step, row] for row in range(3)] for step in range(4)])


def test_positions_step_by_step_longest_rows_first(window: Tensor) -> None:
    actual = ragged(window, Texts(LENGTHS))
    assert actual.counts == [3, 2, 1, 1]
    assert actual.values.tolist() == [[0, 1], [0, 0], [0, 2], [1, 1], [1, 0], [2, 1], [3, 1]]
    assert actual.sort_rows(torch.tensor([10, 11, 12])).tolist() == [11, 10, 12]
    assert actual.values[actual.last].tolist() == [[1, 0], [3, 1], [0, 2]]
    inside = torch.arange(4)[:, None] < LENGTHS
    assert actual.unpack(actual.values).tolist() == (window * inside[..., None]).tolist()


def test_little_padding_is_kept(window: Tensor) -> None:
    wide = window.repeat(1, 7, 1)[:, :20]
    lengths = torch.full((20,), 4)
    lengths[3] = 0  # 4 of 80 positions
    actual = ragged(wide, Texts(lengths))
    assert actual.counts == [20] * 4
    assert actual.values.tolist() == wide.flatten(0, 1).tolist()
    assert actual.unpack(actual.values).tolist() == wide.tolist()
    assert actual.values[actual.last].tolist() == wide[-1].tolist()
    lengths[4] = 3
    assert ragged(wide, Texts(lengths)).counts == [20, 19, 19, 18]
    assert ragged(wide, None).counts == [20] * 4
