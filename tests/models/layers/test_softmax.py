"""The fused cross entropy against torch's."""

import pytest
import torch
from torch.nn import functional as F

from components.models.layers import softmax
from components.models.layers.softmax import aligned, linear_cross_entropy

WIDTH, VOCABULARY = 6, 11


@pytest.mark.parametrize("padded", [False, True], ids=["as it is", "aligned"])
@pytest.mark.parametrize("rows", [1, 4, 7, 12])
def test_values_and_gradients(rows, padded, monkeypatch):
    monkeypatch.setattr(softmax, "CHUNK_ROWS", 4)
    x = torch.randn(rows, WIDTH, requires_grad=True)
    weight = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    bias = torch.randn(VOCABULARY, requires_grad=True)
    targets = torch.randint(0, VOCABULARY, (rows,))

    table, biases = aligned(weight, bias) if padded else (weight, bias)
    assert len(table) == len(biases) == (16 if padded else VOCABULARY)
    loss = linear_cross_entropy(x, table, biases, targets)
    expected = F.cross_entropy(F.linear(x, weight, bias), targets, reduction="sum")

    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        torch.autograd.grad(loss / 3, [x, weight, bias]),
        torch.autograd.grad(expected / 3, [x, weight, bias]),
        atol=1e-5,
        rtol=1e-5,
    )


def test_large_logits_do_not_overflow():
    x = torch.tensor([[1000.0], [-1000.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    loss = linear_cross_entropy(x, weight, torch.zeros(2), torch.tensor([0, 1]))
    loss.backward()
    assert float(loss.detach()) == 0
    assert x.grad is not None and x.grad.tolist() == [[0.0], [0.0]]


def test_an_impossible_target_stays_finite():
    loss = linear_cross_entropy(
        torch.tensor([[1000.0]]), torch.tensor([[1.0], [-1.0]]), torch.zeros(2), torch.tensor([1])
    )
    assert float(loss) == pytest.approx(-torch.tensor(torch.finfo(torch.float32).tiny).log().item())
