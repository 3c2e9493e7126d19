"""Relative attention against loops over the paper's equations."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from components.models.layers.relative import RelativeAttention, RelativeConfig, Scope, distances, sinusoids

ROWS, LENGTH, MEMORY, WIDTH, HEADS = 2, 5, 3, 28, 2
KEYS = MEMORY + LENGTH


def attention(**options: Any) -> RelativeAttention:
    torch.manual_seed(0)
    layer = RelativeAttention(WIDTH, HEADS, dropout=0.0, **options)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    # In float64 only the encodings, which are float32, have rounding errors.
    return layer.double()


def encoding_of(distance: float) -> Tensor:
    """R at one distance, by loops."""
    angles = [distance / 10000 ** (2 * index / WIDTH) for index in range(WIDTH // 2)]
    return torch.tensor([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]).double()


def by_loops(
    layer: RelativeAttention, x: Tensor, source: Tensor, positions: Tensor, seen: Tensor, *,
    segments: tuple[Tensor, Tensor] | None = None, backward: tuple[int, ...] = (0, 0), clamp: int = 0,
) -> Tensor:  # fmt: skip
    """Attention of queries `x` (B, Q, D) at `positions` (B, Q) of the segment over `source` (B, S, D), by loops."""
    size = WIDTH // HEADS
    split = (HEADS, size)
    outputs = []
    for row in range(ROWS):
        for query in range(x.shape[1]):
            heads = []
            q = (layer.query.weight @ x[row, query]).view(split)
            here = MEMORY + int(positions[row, query])
            keys_values = [(layer.key_value.weight @ source[row, j]).view(2, *split) for j in range(KEYS)]
            for head in range(HEADS):
                scores = []
                for j in range(KEYS):
                    distance = here - j
                    distance = max(-clamp, min(clamp, distance)) if clamp else distance
                    r = (layer.position.weight @ encoding_of(-distance if backward[row] else distance)).view(split)
                    score = (q[head] + layer.content_bias[head]) @ keys_values[j][0, head]
                    score = score + (q[head] + layer.position_bias[head]) @ r[head]
                    if segments is not None:
                        kind = int(segments[0][row, query] != segments[1][row, j])
                        score = score + (q[head] + layer.segment_bias[head]) @ layer.segment[kind, head]
                    scores.append(score / math.sqrt(size))
                weights = torch.stack([score.exp() * bool(seen[row, query, j]) for j, score in enumerate(scores)])
                weights = weights / weights.sum()
                heads.append(sum(weight * keys_values[j][1, head] for j, weight in enumerate(weights)))
            outputs.append(layer.output.weight @ torch.cat(heads))
    return torch.stack(outputs).view(x.shape)


def inputs(further: int = 0) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(ROWS, LENGTH + further, WIDTH).double(), torch.randn(ROWS, KEYS, WIDTH).double()


def in_order() -> Tensor:
    return torch.arange(LENGTH).expand(ROWS, -1)


def test_distances():
    device = torch.device("cpu")
    assert distances(2, 5, ahead=False, clamp=0, device=device).tolist() == [4, 3, 2, 1, 0, -1]
    assert distances(2, 5, ahead=True, clamp=3, device=device).tolist() == [3, 3, 2, 1, 0, -1, -2]


@pytest.mark.parametrize("clamp", [0, 2])
@pytest.mark.parametrize("length", [1, LENGTH])
def test_causal_attention_over_a_memory(clamp, length):
    """A whole segment, and its last query alone, where W_R is applied to the query instead of the distances."""
    layer = attention()
    x, source = inputs()
    seen = torch.arange(KEYS) <= MEMORY + torch.arange(LENGTH)[:, None]
    x, seen, positions = x[:, -length:], seen[-length:], in_order()[:, -length:]
    scope = Scope(length, sinusoids(distances(length, KEYS, ahead=False, clamp=clamp, device=x.device), WIDTH), ~seen)
    actual = layer(x, layer.key_value(source), scope)
    expected = by_loops(layer, x, source, positions, seen.expand(ROWS, -1, -1), clamp=clamp)
    assert actual.shape == (ROWS, length, WIDTH)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    mine = torch.autograd.grad(actual.square().sum(), list(layer.parameters()))
    theirs = torch.autograd.grad(expected.square().sum(), list(layer.parameters()))
    for left, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("backward", [None, (0, 1)])
@pytest.mark.parametrize("only_further", [False, True])
def test_further_queries_segments_and_direction(backward, only_further):
    layer = attention(segments=True)
    x, source = inputs(further=3)
    further = torch.tensor([[0, 2, 4], [3, 3, 1]])
    positions = torch.cat([in_order(), further], 1)
    torch.manual_seed(2)
    seen = torch.rand(ROWS, LENGTH + 3, KEYS) < 0.6
    seen[..., 0] = True
    of_queries, of_keys = torch.randint(2, (ROWS, LENGTH + 3)), torch.randint(2, (ROWS, KEYS))
    steps = distances(LENGTH, KEYS, ahead=True, clamp=0, device=x.device)
    encoding = sinusoids(steps, WIDTH)
    if backward is not None:
        encoding = torch.stack([encoding, sinusoids(-steps, WIDTH)])
    scope = Scope(
        LENGTH,
        encoding,
        hidden=~seen,
        positions=further,
        differs=of_queries[:, :, None] != of_keys[:, None],
        backward=None if backward is None else torch.tensor(backward),
    )
    expected = by_loops(
        layer, x, source, positions, seen, segments=(of_queries, of_keys), backward=backward or (0, 0)
    )  # fmt: skip
    if only_further:
        x, scope, expected = x[:, LENGTH:], scope.further(), expected[:, LENGTH:]
    actual = layer(x, layer.key_value(source), scope)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    mine = torch.autograd.grad(actual.square().sum(), list(layer.parameters()))
    theirs = torch.autograd.grad(expected.square().sum(), list(layer.parameters()))
    for left, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)


def test_a_query_with_all_keys_masked_is_finite():
    layer = attention()
    x, source = inputs()
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
    for left, right in zip(
        torch.autograd.grad(actual.square().sum(), leaves), torch.autograd.grad(expected.square().sum(), leaves),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(left, right)


def test_invalid_sizes():
    with pytest.raises(ValueError, match="width 10 is not a multiple of heads 4"):
        RelativeConfig(vocabulary=1, width=10, heads=4)
    with pytest.raises(ValueError, match="width 9 is odd"):
        RelativeConfig(vocabulary=1, width=9, heads=3)
