"""The LSTM layer against the equations, step by step."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from components.models.layers import lstm
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
def summing_once(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """As if the layer's sums were too large for the cache; returns what is asked for a window."""
    monkeypatch.setattr(lstm, "SUMS_BYTES", 0)
    apply = Mock(wraps=lstm._FewRows.apply)
    monkeypatch.setattr(lstm._FewRows, "apply", apply)
    return apply


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("steps", [1, STEPS])
def test_values_and_gradients(layer: LSTM, once: bool, steps: int, request: pytest.FixtureRequest) -> None:
    asked = request.getfixturevalue("summing_once") if once else Mock()
    layer.double()
    x = torch.randn(steps, ROWS, INPUTS, requires_grad=True, dtype=torch.float64)
    state = (torch.randn(ROWS, HIDDEN).double(), torch.randn(ROWS, HIDDEN).double())
    weight = torch.randn(steps, ROWS, HIDDEN)
    inputs = [x, *layer.parameters()]

    output, (h, c) = layer(x, state)
    gradients = torch.autograd.grad((output * weight).sum(), inputs)
    expected, *expected_state = by_hand(layer, x, *state)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), inputs)

    assert asked.called == once
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close([h, c], expected_state)
    torch.testing.assert_close(gradients, expected_gradients)


def test_gradients_summed_once_go_where_they_are_wanted(layer: LSTM, summing_once: Mock) -> None:
    layer.weight_hh.requires_grad_(False)
    x = torch.randn(STEPS, ROWS, INPUTS)
    output, _ = layer(x)
    wanted = [layer.weight_ih, layer.bias]
    found = torch.autograd.grad(output.square().sum(), wanted)
    expected, *_ = by_hand(layer, x, torch.zeros(ROWS, HIDDEN), torch.zeros(ROWS, HIDDEN))
    torch.testing.assert_close(found, torch.autograd.grad(expected.square().sum(), wanted), atol=1e-5, rtol=1e-4)
    assert summing_once.called


def test_many_rows_and_small_layers_are_left_to_the_kernel(layer: LSTM, monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Mock(side_effect=AssertionError)
    monkeypatch.setattr(lstm._FewRows, "apply", apply)
    layer(torch.randn(STEPS, ROWS, INPUTS))[0].sum().backward()
    monkeypatch.setattr(lstm, "SUMS_BYTES", 0)
    layer(torch.randn(STEPS, lstm.FEW_ROWS + 1, INPUTS))[0].sum().backward()
    with torch.no_grad():
        layer(torch.randn(STEPS, ROWS, INPUTS))


def test_bfloat16_gradients_summed_once_are_close(layer: LSTM, summing_once: Mock) -> None:
    x = torch.randn(STEPS, ROWS, INPUTS)
    with torch.autocast("cpu", torch.bfloat16):
        layer(x)[0].float().square().sum().backward()
    found = [parameter.grad for parameter in layer.parameters()]
    expected, *_ = by_hand(layer, x, torch.zeros(ROWS, HIDDEN), torch.zeros(ROWS, HIDDEN))
    wanted = torch.autograd.grad(expected.square().sum(), list(layer.parameters()))
    for gradient, exact in zip(found, wanted, strict=True):
        assert gradient is not None and gradient.dtype == torch.float32
        assert float((gradient - exact).norm() / exact.norm()) < 0.02


def test_no_state_is_zero_state(layer: LSTM) -> None:
    x = torch.randn(STEPS, ROWS, INPUTS)
    zeros = torch.zeros(ROWS, HIDDEN)
    torch.testing.assert_close(layer(x)[0], layer(x, (zeros, zeros))[0])


def test_two_windows_are_one(layer: LSTM) -> None:
    x = torch.randn(STEPS, ROWS, INPUTS)
    first, state = layer(x[:2])
    second, _ = layer(x[2:], state)
    torch.testing.assert_close(torch.cat([first, second]), layer(x)[0])


def test_no_gradient_leaves_the_window(layer: LSTM) -> None:
    _, state = layer(torch.randn(STEPS, ROWS, INPUTS, requires_grad=True))
    assert not any(part.requires_grad for part in state)


def test_bfloat16_under_autocast_is_close(layer: LSTM) -> None:
    x = torch.randn(STEPS, ROWS, INPUTS)
    with torch.autocast("cpu", torch.bfloat16):
        output, (h, c) = layer(x)
    assert output.dtype == h.dtype == c.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), layer(x)[0], atol=0.02, rtol=0.02)


def test_forget_gates_start_open(layer: LSTM) -> None:
    assert layer.bias.tolist() == [0] * HIDDEN + [1] * HIDDEN + [0] * 2 * HIDDEN


def test_weight_drop_is_on_the_recurrence_alone() -> None:
    layer = LSTM(INPUTS, HIDDEN, weight_drop=0.9)
    x = torch.randn(2, ROWS, INPUTS)
    still = layer.eval()(x)[0]
    dropped = layer.train()(x)[0]
    # The first step starts from zeros, so its hidden-to-hidden weights play no part.
    torch.testing.assert_close(dropped[0], still[0])
    assert not torch.allclose(dropped[1], still[1])
