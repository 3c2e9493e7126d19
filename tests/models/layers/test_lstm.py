"""The LSTM layer against the equations, step by step."""

from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from components.models.layers import lstm_kernels
from components.models.layers.chunks import Texts
from components.models.layers.lstm import LSTM

STEPS, ROWS, INPUTS, HIDDEN = 6, 3, 5, 4


def by_hand(layer: LSTM, x_TBI: Tensor, h_BH: Tensor, c_BH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    outputs = []
    for x_BI in x_TBI:
        i, f, g, o = (x_BI @ layer.weight_ih.T + h_BH @ layer.weight_hh.T + layer.bias).chunk(4, dim=1)
        c_BH = f.sigmoid() * c_BH + i.sigmoid() * g.tanh()
        h_BH = o.sigmoid() * c_BH.tanh()
        outputs.append(h_BH)
    return torch.stack(outputs), h_BH, c_BH


@pytest.fixture
def layer() -> LSTM:
    return LSTM(INPUTS, HIDDEN)


@pytest.fixture
def by_steps(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Every layer is computed by steps; returns a mock that counts the windows."""
    monkeypatch.setattr(lstm_kernels, "suits_steps", lambda *_: True)
    called = Mock(wraps=lstm_kernels.by_steps)
    monkeypatch.setattr(lstm_kernels, "by_steps", called)
    return called


@pytest.mark.parametrize("stepping", [False, True])
@pytest.mark.parametrize("steps", [1, STEPS])
def test_values_and_gradients(layer, stepping, steps, request):
    called = request.getfixturevalue("by_steps") if stepping else Mock()
    layer.double()
    x = torch.randn(steps, ROWS, INPUTS, requires_grad=True, dtype=torch.float64)
    state = (torch.randn(ROWS, HIDDEN).double(), torch.randn(ROWS, HIDDEN).double())
    weight = torch.randn(steps, ROWS, HIDDEN)
    inputs = [x, *layer.parameters()]

    output, (h, c) = layer(x, state)
    gradients = torch.autograd.grad((output * weight).sum(), inputs)
    expected, *expected_state = by_hand(layer, x, *state)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), inputs)

    assert called.called == stepping
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close([h, c], expected_state)
    torch.testing.assert_close(gradients, expected_gradients)


@pytest.mark.parametrize("lengths", [[2, 6, 1], [3, 3, 1], [6, 0, 2]])
def test_rows_that_end_early_equal_separate_rows(layer, by_steps, lengths):
    layer.double()
    x = torch.randn(STEPS, ROWS, INPUTS, requires_grad=True, dtype=torch.float64)
    state = (torch.randn(ROWS, HIDDEN).double(), torch.randn(ROWS, HIDDEN).double())
    inside = torch.arange(STEPS)[:, None] < torch.tensor(lengths)
    weight = torch.randn(STEPS, ROWS, HIDDEN) * inside[..., None]
    inputs = [x, *layer.parameters()]

    output, (h, c) = layer(x, state, texts=Texts(torch.tensor(lengths)))
    gradients = torch.autograd.grad((output * weight).sum(), inputs)
    expected, *_ = by_hand(layer, x, *state)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), inputs)

    torch.testing.assert_close(output[inside], expected[inside])
    torch.testing.assert_close(gradients, expected_gradients)
    for row, length in enumerate(lengths):
        if length:
            _, *last = by_hand(layer, x[:length], *state)
            torch.testing.assert_close([h[row], c[row]], [last[0][row], last[1][row]])
    assert by_steps.called
