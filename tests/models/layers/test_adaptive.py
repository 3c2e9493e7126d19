"""The tied vocabulary and its clusters: loss and logits, bias, and another vocabulary.

The import of Transformer-XL compares the probabilities with the definition.
"""

import pytest
import torch
from torch import Tensor, nn

from components.models.layers.adaptive import TiedVocabulary

VOCABULARY, WIDTH, CUTOFFS = 20, 12, (6, 11)
KINDS = [((), 1), (CUTOFFS, 1), (CUTOFFS, 2)]


def wild(cutoffs: tuple[int, ...] = CUTOFFS, divide: int = 1, vocabulary: int = VOCABULARY) -> TiedVocabulary:
    torch.manual_seed(0)
    module = TiedVocabulary(vocabulary, WIDTH, cutoffs=cutoffs, divide=divide)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def rows(module: TiedVocabulary) -> Tensor:
    """Every piece's embedding in model width."""
    return module.embed(torch.arange(len(module.bias)))


@pytest.mark.parametrize(("cutoffs", "divide"), KINDS)
def test_the_loss_is_that_of_the_logits(cutoffs, divide):
    module = wild(cutoffs, divide)
    x, targets = torch.randn(50, WIDTH, requires_grad=True), torch.randint(VOCABULARY, (50,))
    expected = nn.functional.cross_entropy(module.logits(x), targets, reduction="sum")
    actual = module.loss_sum(x, targets)
    torch.testing.assert_close(actual, expected)
    leaves = [x, *module.parameters()]
    gradients = (torch.autograd.grad(loss, leaves) for loss in (actual, expected))
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)
    if cutoffs:
        torch.testing.assert_close(module.logits(x).exp().sum(-1), torch.ones(50))


@pytest.mark.parametrize(("cutoffs", "divide"), KINDS)
def test_the_bias_is_initialised_with_the_frequencies(cutoffs, divide):
    module = wild(cutoffs, divide)
    frequencies = torch.rand(VOCABULARY).square()
    frequencies /= frequencies.sum()
    module.set_bias(frequencies.log())
    torch.testing.assert_close(module.logits(torch.zeros(WIDTH)).softmax(-1), frequencies)


@pytest.mark.parametrize(("cutoffs", "divide"), KINDS)
@pytest.mark.parametrize("size", [6, 15, 20, 31])
def test_another_vocabulary(cutoffs, divide, size):
    """Rows move between clusters. Without projections, vectors are kept. With projections, vectors are kept in wider
    clusters and are least-squares fits in narrower ones."""
    module = wild(cutoffs, divide)
    old = rows(module).detach()
    generator = torch.Generator().manual_seed(1)
    origin = torch.randint(-1, VOCABULARY, (size,), generator=generator)
    origin[0], origin[-1] = 19, -1
    new = module.remapped(origin)
    actual = rows(new).detach()
    assert len(new.bias) == size and new.bounds[:-1] == [0, *(cutoff for cutoff in cutoffs if cutoff < size)]
    cuts = torch.tensor([*cutoffs]) if cutoffs else torch.zeros(0)
    for position, source in enumerate(origin.tolist()):
        wanted = old[source] if source >= 0 else old.mean(0)
        if divide == 1:
            torch.testing.assert_close(actual[position], wanted)
            continue
        cluster, before = (int(torch.bucketize(torch.tensor(item), cuts, right=True)) for item in (position, source))
        if source >= 0 and cluster == before and new.projections:
            now = new.tables[cluster][position - new.bounds[cluster]]
            torch.testing.assert_close(now, module.tables[cluster][source - module.bounds[cluster]])
        elif cluster == 0:
            torch.testing.assert_close(actual[position], wanted, atol=1e-3, rtol=1e-3)
        else:
            # The residual of the least-squares fit is orthogonal to the cluster's row space.
            rest = new.projections[cluster] @ (wanted - actual[position])
            torch.testing.assert_close(rest, torch.zeros_like(rest), atol=1e-4, rtol=0)
    torch.testing.assert_close(new.bias[0], module.bias[19])
    torch.testing.assert_close(new.bias[-1], module.bias.mean())
    assert all(torch.equal(left, right) for left, right in zip(new.parameters(), module.remapped(origin).parameters(), strict=True))  # noqa: E501  # fmt: skip


@pytest.mark.parametrize(("before", "after"), [(20, 6), (6, 20), (20, 20)])
def test_logits_of_the_first_cluster_with_an_output_projection_survive_another_vocabulary(before, after):
    """With and without clusters on either side."""
    torch.manual_seed(0)
    module = TiedVocabulary(before, WIDTH, cutoffs=CUTOFFS, divide=2, output_projection=True)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    x = torch.randn(4, WIDTH)
    new = module.remapped(torch.arange(after) % before)
    # Both are log probabilities up to a constant of x.
    expected, actual = (each.logits(x)[:, :6].log_softmax(-1) for each in (module, new))
    torch.testing.assert_close(actual, expected, atol=2e-3, rtol=1e-3)
    targets = torch.tensor([0, 3, 5, after - 1])
    loss = nn.functional.cross_entropy(new.logits(x), targets, reduction="sum")
    torch.testing.assert_close(new.loss_sum(x, targets), loss)
