"""Relative attention: distances, masks, and the kernel of a GPU.

Its values are compared with transformers in test_xlnet, and with loops in the import of Transformer-XL.
"""

import pytest
import torch
from torch import nn

from components.models.layers.relative import RelativeAttention, RelativeConfig, Scope, distances, sinusoids

ROWS, LENGTH, MEMORY, WIDTH, HEADS = 2, 5, 3, 28, 2
KEYS = MEMORY + LENGTH


def attention() -> RelativeAttention:
    torch.manual_seed(0)
    layer = RelativeAttention(WIDTH, HEADS, dropout=0.0)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    # In float64 only the encodings, which are float32, have rounding errors.
    return layer.double()


def test_a_query_with_all_keys_masked_is_finite():
    layer = attention()
    x, source = (torch.randn(ROWS, length, WIDTH).double() for length in (LENGTH, KEYS))
    hidden = torch.ones(LENGTH, KEYS, dtype=torch.bool)
    scope = Scope(LENGTH, sinusoids(distances(LENGTH, KEYS, ahead=True, clamp=0, device=x.device), WIDTH), hidden)
    expected = layer.output(layer.key_value(source).chunk(2, -1)[1].mean(1))
    actual = layer(x, layer.key_value(source), scope)
    torch.testing.assert_close(actual, expected[:, None].expand_as(actual), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_the_kernel_of_a_gpu_computes_the_same(masked):
    layer = attention()
    torch.manual_seed(3)
    q, k, v = (torch.randn(HEADS, ROWS, length, 14).double().requires_grad_() for length in (LENGTH, KEYS, KEYS))
    scores = torch.randn(HEADS, ROWS, LENGTH, KEYS).double().requires_grad_()
    hidden = torch.rand(ROWS, LENGTH, KEYS) < 0.4 if masked else None
    actual, expected = layer._by_kernel(q, k, v, scores, hidden), layer._in_place(q, k, v, scores.clone(), hidden)
    torch.testing.assert_close(actual, expected)
    leaves = [q, k, v, scores]
    gradients = (torch.autograd.grad(result.square().sum(), leaves) for result in (actual, expected))
    torch.testing.assert_close(*gradients)


def test_invalid_sizes():
    with pytest.raises(ValueError, match="width 10 is not a multiple of heads 4"):
        RelativeConfig(vocabulary=1, width=10, heads=4)
    with pytest.raises(ValueError, match="width 9 is odd"):
        RelativeConfig(vocabulary=1, width=9, heads=3)
