"""The LSTM layers against the equations, step by step, without and with a projection that is clipped."""

import math
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from components.models.layers import lstm_kernels
from components.models.layers.chunks import Texts
from components.models.layers.lstm import LSTM, ProjectedLSTM

STEPS, ROWS, INPUTS, CELLS, PROJECTION = 6, 3, 5, 8, 4
#: Clips about half of the values in these tests, and none.
CLIP, NEVER = 0.2, 3.0


def layer_of(clip: float | None) -> LSTM | ProjectedLSTM:
    """A layer with a projection, or without (None)."""
    layer = LSTM(INPUTS, CELLS) if clip is None else ProjectedLSTM(INPUTS, CELLS, PROJECTION, clip=clip)
    # Biases of 0 and 1 could hide errors.
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer.double() if clip is None else layer


def by_hand(layer: LSTM | ProjectedLSTM, x_TBI: Tensor, h_BP: Tensor, c_BH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    clip = getattr(layer, "clip", math.inf)
    outputs = []
    for x_BI in x_TBI:
        i, f, g, o = (x_BI @ layer.weight_ih.T + h_BP @ layer.weight_hh.T + layer.bias).chunk(4, dim=1)
        c_BH = (f.sigmoid() * c_BH + i.sigmoid() * g.tanh()).clamp(-clip, clip)
        h_BP = o.sigmoid() * c_BH.tanh()
        if isinstance(layer, ProjectedLSTM):
            h_BP = (h_BP @ layer.weight_hr.T).clamp(-clip, clip)
        outputs.append(h_BP)
    return torch.stack(outputs), h_BP, c_BH


def inputs(layer: LSTM | ProjectedLSTM, steps: int = STEPS) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
    """An input, a state, and weights of the outputs."""
    width = layer.weight_hh.shape[1]
    shapes = ((steps, ROWS, INPUTS), (ROWS, width), (ROWS, CELLS), (steps, ROWS, width))
    x, h, c, weight = (torch.randn(shape, dtype=layer.bias.dtype) for shape in shapes)
    return x.requires_grad_(), (h, c), weight


@pytest.fixture
def by_steps(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Every layer is computed by steps; returns a mock that counts the windows."""
    monkeypatch.setattr(lstm_kernels, "suits_steps", lambda *_: True)
    called = Mock(wraps=lstm_kernels.by_steps)
    monkeypatch.setattr(lstm_kernels, "by_steps", called)
    return called


@pytest.mark.parametrize("stepping", [False, True])
@pytest.mark.parametrize("steps", [1, STEPS])
def test_values_and_gradients(stepping, steps, request):
    called = request.getfixturevalue("by_steps") if stepping else Mock()
    layer = layer_of(None)
    x, state, weight = inputs(layer, steps)
    leaves = [x, *layer.parameters()]
    output, last = layer(x, state)
    gradients = torch.autograd.grad((output * weight).sum(), leaves)
    expected, *expected_last = by_hand(layer, x, *state)
    assert called.called == stepping
    torch.testing.assert_close((output, *last), (expected, *expected_last))
    torch.testing.assert_close(gradients, torch.autograd.grad((expected * weight).sum(), leaves))


@pytest.mark.parametrize(
    ("clip", "lengths"),
    [
        *((None, lengths) for lengths in ([2, 6, 1], [3, 3, 1], [6, 0, 2])),
        *((clip, [2, STEPS, 4]) for clip in (CLIP, NEVER)),
    ],
)
def test_rows_that_end_early_equal_separate_rows(clip, lengths, by_steps):
    layer = layer_of(clip)
    x, state, weight = inputs(layer)
    leaves = [x, *layer.parameters()]
    inside = (torch.arange(STEPS)[:, None] < torch.tensor(lengths))[..., None]
    # Of a projection, padding is not computed.
    padded = x if clip is None else x.where(inside, math.nan)
    output, last = layer(padded, state, texts=Texts(torch.tensor(lengths)))
    gradients = torch.autograd.grad((output * weight).where(inside, 0).sum(), leaves)
    total = torch.zeros(())
    for row, length in enumerate(lengths):
        if length:
            expected, *ends = by_hand(layer, x[:length], *state)
            torch.testing.assert_close(output[:length, row], expected[:, row])
            torch.testing.assert_close([part[row] for part in last], [end[row] for end in ends])
            total = total + (expected[:, row] * weight[:length, row]).sum()
    torch.testing.assert_close(gradients, torch.autograd.grad(total, leaves), atol=1e-5, rtol=1e-5)
    assert by_steps.called == (clip is None)
