"""The CRF against the enumeration of all paths: partition function, best path, legal transitions."""

import itertools

import pytest
import torch
from torch import Tensor

from components.models.layers.crf import PADDING, Legal, LinearChainCRF

#: O is 0, B 1 and I 2: BIO with one type.
BIO = Legal(
    torch.tensor([True, True, False]),
    torch.tensor([[True, True, False], [True, True, True], [True, True, True]]),
    torch.tensor([True, True, True]),
)
#: B is 0 and E 1: every B is followed by an E.
PAIRS = Legal(torch.tensor([True, False]), torch.tensor([[False, True], [True, False]]), torch.tensor([False, True]))
LENGTHS = torch.tensor([4, 1, 3])


def random_crf(tags: int, *, legal: Legal | None = None, seed: int = 0) -> LinearChainCRF:
    torch.manual_seed(seed)
    layer = LinearChainCRF(tags, legal=legal)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer


def paths(layer: LinearChainCRF, x_TC: Tensor, *, legal: Legal | None = None) -> dict[tuple[int, ...], float]:
    """Every (legal) sequence with its score."""
    start, transition, end = (part.tolist() for part in (layer.start, layer.transition, layer.end))
    actual = {}
    for path in itertools.product(range(layer.tags), repeat=len(x_TC)):
        if legal is not None and not is_legal(legal, path):
            continue
        score = start[path[0]] + end[path[-1]] + sum(float(x_TC[position, tag]) for position, tag in enumerate(path))
        actual[path] = score + sum(transition[before][after] for before, after in itertools.pairwise(path))
    return actual


def is_legal(legal: Legal, path: tuple[int, ...]) -> bool:
    steps = all(bool(legal.step[before, after]) for before, after in itertools.pairwise(path))
    return bool(legal.start[path[0]]) and bool(legal.end[path[-1]]) and steps


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_different_lengths_against_all_paths(seed):
    layer = random_crf(4, seed=seed)
    x = 3 * torch.randn(3, 4, 4)
    tags = torch.randint(4, (3, 4))
    actual = layer.log_partition(x, LENGTHS)
    likelihood = layer.log_likelihood(x, tags, LENGTHS)
    decoded = layer.decode(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        scored = paths(layer, x[row, :length])
        total = torch.tensor(list(scored.values()), dtype=torch.float64).logsumexp(0).item()
        assert actual[row].item() == pytest.approx(total, abs=1e-6)
        gold = tuple(tags[row, :length].tolist())
        assert likelihood[row].item() == pytest.approx(scored[gold] - total, abs=1e-6)
        best = max(scored, key=lambda path: scored[path])
        assert decoded[row].tolist() == [*best, *[PADDING] * (4 - length)]


@pytest.mark.parametrize("seed", range(3))
def test_decoding_is_the_best_legal_path(seed):
    layer = random_crf(3, legal=BIO, seed=seed)
    x = 5 * torch.randn(3, 4, 3)
    # A high score for an illegal first tag.
    x[:, 0, 2] += 30
    decoded = layer.decode(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        scored = paths(layer, x[row, :length], legal=BIO)
        best = max(scored, key=lambda path: scored[path])
        assert decoded[row, :length].tolist() == list(best)
        everything = paths(layer, x[row, :length])
        assert max(everything, key=lambda path: everything[path]) != best


def test_without_a_legal_sequence_the_one_with_the_fewest_violations_is_found():
    layer = LinearChainCRF(2, legal=PAIRS)
    x = torch.zeros(1, 3, 2)
    x[0, :, 0] = 1.0
    # B E B has one illegal transition, at the end; B B B has three.
    assert layer.decode(x, torch.tensor([3])).tolist() == [[0, 1, 0]]


def test_scores_far_apart_stay_exact():
    layer = LinearChainCRF(3)
    x = torch.zeros(1, 3, 3)
    x[0, 0] = torch.tensor([300.0, 0.0, -300.0])
    with torch.no_grad():
        # Tag 1 is reachable only from tag 2, which is 600 nats below.
        layer.transition[:2, 1] = -2000.0
        layer.transition[:, 0] = layer.transition[:, 2] = -2000.0
    assert layer.log_partition(x[:, :2], torch.tensor([2])).item() == pytest.approx(-300.0, abs=1e-9)


def test_gradients_are_those_of_finite_differences():
    layer = random_crf(3, legal=BIO)
    x = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    tags, lengths = torch.tensor([[1, 2, 0], [0, 1, 0]]), torch.tensor([3, 2])
    layer.double()
    assert torch.autograd.gradcheck(lambda *_: layer.log_likelihood(x, tags, lengths), (x, *layer.parameters()))
