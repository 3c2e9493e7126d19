"""The linear layer against torch's."""

import pytest
import torch
from torch import nn

from components.models.layers.linear import Linear


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_values_and_gradients(autocast, bias):
    ours, plain = Linear(12, 7, bias=bias), nn.Linear(12, 7, bias=bias)
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(3, 5, 12, requires_grad=True)
    weight = torch.randn(3, 5, 7)
    results = []
    for layer in (ours, plain):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            output = layer(x)
        results.append((output, *torch.autograd.grad((output * weight).sum(), [x, *layer.parameters()])))
    tolerance = 0.05 if autocast else 1e-5
    for actual, expected in zip(*results, strict=True):
        assert actual.dtype == expected.dtype
        torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)
