"""Rotary positions and gated feed-forward layers against implementations in NumPy and of transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import erf
from torch import Tensor
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from components.models.layers.attention import SelfAttention
from components.models.layers.rotary import rotated, rotation
from components.models.layers.transformer import Block, TransformerConfig, gated_width

Floats = NDArray[np.float64]


def turned(x_TNK: Floats, positions_T: NDArray[np.int64]) -> Floats:
    """RoFormer, equation 13: each pair is a complex number that is multiplied by e^(i t f)."""
    half = x_TNK.shape[-1] // 2
    angles = positions_T[:, None, None] * 10_000.0 ** (-np.arange(half) / half)
    z = (x_TNK[..., :half] + 1j * x_TNK[..., half:]) * np.exp(1j * angles)
    return np.concatenate([z.real, z.imag], -1)


def linear(layer: torch.nn.Linear, x: Floats) -> Floats:
    product = x @ layer.weight.detach().double().numpy().T
    return product if layer.bias is None else product + layer.bias.detach().double().numpy()


def test_a_rotation_by_hand() -> None:
    # One pair of frequency 1: (1, 0) at position t becomes (cos t, sin t).
    x = torch.tensor([[1.0, 0.0]] * 3).view(1, 3, 1, 2)
    found = rotated(x, rotation(torch.tensor([0, 1, 2]), 2))[0, :, 0]
    expected = torch.tensor([[1.0, 0.0], [0.5403023, 0.8414710], [-0.4161468, 0.9092974]])
    torch.testing.assert_close(found, expected)


def test_rotation_equals_numpy_and_transformers() -> None:
    x = torch.randn(2, 7, 3, 8)
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 0, 1, 0, 9]])
    found = rotated(x, rotation(positions, 8))
    for row in range(2):
        expected = turned(x[row].double().numpy(), positions[row].numpy())
        torch.testing.assert_close(found[row], torch.from_numpy(expected).float(), atol=1e-5, rtol=1e-5)
    cos, sin = (torch.cat([table, table], -1) for table in rotation(positions, 8))
    theirs, _ = apply_rotary_pos_emb(x, x, cos, sin, unsqueeze_dim=2)
    torch.testing.assert_close(found, theirs)


def test_products_depend_on_distances_only() -> None:
    q, k = torch.randn(2, 16)
    products = []
    for start in (0, 5, 80):
        at_q, at_k = (rotated(x.view(1, 1, 1, 16), rotation(torch.tensor([place]), 16)).flatten()
                      for x, place in ((q, start + 3), (k, start)))  # fmt: skip
        products.append(float(at_q @ at_k))
    assert products == pytest.approx([products[0]] * 3, rel=1e-4)
    assert products[0] != pytest.approx(float(q @ k), rel=1e-2)


@pytest.mark.parametrize("biases", [True, False])
def test_attention_with_rotated_queries_and_keys(biases: bool) -> None:
    attention = SelfAttention(12, 3, dropout=0.0, biases=biases).eval()
    assert (attention.query_key_value.bias is not None) == (attention.output.bias is not None) == biases
    x_TD = torch.randn(5, 12)
    q, k, v = (
        part.reshape(5, 3, 4) for part in np.split(linear(attention.query_key_value, x_TD.double().numpy()), 3, -1)
    )
    q, k = turned(q, np.arange(5)), turned(k, np.arange(5))
    scores = np.einsum("tnk,snk->nts", q, k) / 2
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected = linear(attention.output, np.einsum("nts,snk->tnk", weights, v).reshape(5, 12))
    found = attention(x_TD[None], None, rotation(torch.arange(5), 4))[0]
    torch.testing.assert_close(found, torch.from_numpy(expected).float(), atol=1e-5, rtol=1e-5)


def normed(x: Floats, norm: torch.nn.LayerNorm) -> Floats:
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + norm.eps)
    return y * norm.weight.detach().numpy() + (0 if norm.bias is None else norm.bias.detach().numpy())


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("biases", [True, False])
def test_a_gated_block(norm_first: bool, biases: bool) -> None:
    config = TransformerConfig(vocabulary=10, width=24, heads=3, norm_eps=1e-5)
    block = Block(config, norm_first=norm_first, glu=True, biases=biases).eval()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x_TD = torch.randn(4, 24)
    x = x_TD.double().numpy()

    def attention(y: Floats) -> Floats:
        return block.attention(torch.from_numpy(y).float()[None])[0].detach().double().numpy()

    def feed(y: Floats) -> Floats:
        gate, value = np.split(linear(block.expand, y), 2, -1)
        return linear(block.contract, gate * (1 + erf(gate / np.sqrt(2))) / 2 * value)

    if norm_first:
        x = x + attention(normed(x, block.attention_norm))
        expected = x + feed(normed(x, block.norm))
    else:
        x = normed(x + attention(x), block.attention_norm)
        expected = normed(x + feed(x), block.norm)
    torch.testing.assert_close(block(x_TD[None])[0], torch.from_numpy(expected).float(), atol=1e-4, rtol=1e-4)
    assert all("bias" not in name for name, _ in block.named_parameters()) != biases


@pytest.mark.parametrize(("width", "inner"), [(32, 96), (192, 512), (256, 672), (768, 2048)])
def test_a_gated_layer_has_about_as_many_weights(width: int, inner: int) -> None:
    assert gated_width(width) == inner
    assert 3 * inner == pytest.approx(8 * width, rel=0.13)


def test_bfloat16() -> None:
    x: Tensor = torch.randn(1, 6, 2, 8)
    by = rotation(torch.arange(6), 8)
    assert rotated(x.bfloat16(), by).dtype == torch.bfloat16
    torch.testing.assert_close(rotated(x.bfloat16(), by).float(), rotated(x, by), atol=0.03, rtol=0.03)
