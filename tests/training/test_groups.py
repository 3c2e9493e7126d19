"""Parameter groups: rates, decay and unfreezing."""

import pytest
import torch
from torch import nn

from components.training.optim import ALWAYS, ParameterGroup, Span, decayed, discriminative


def test_vectors_have_no_decay_and_tied_parameters_occur_once():
    matrix, vector = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    matrices, vectors = decayed([matrix, vector, matrix])
    assert matrices.parameters == [matrix]
    assert vectors.parameters == [vector]
    assert (matrices.weight_decay, vectors.weight_decay) == (None, 0.0)


def layers(count: int) -> list[list[nn.Parameter]]:
    return [[nn.Parameter(torch.ones(2, 2))] for _ in range(count)]


def table(groups: list[ParameterGroup], members: list[list[nn.Parameter]]) -> list[tuple[int, float, tuple[Span, ...]]]:
    """The members of a group, its scale and its spans."""
    places = {id(parameters[0]): place for place, parameters in enumerate(members)}
    return [(places[id(group.parameters[0])], group.scale, group.spans) for group in groups]


def test_discriminative_rates_and_gradual_unfreezing():
    low, middle, top, head = members = layers(4)
    groups = discriminative([low, middle, top], head=head, factor=2.0, unfreeze_every=10)
    assert table(groups, members) == [
        (3, 1.0, ((0, None),)),
        (2, 1.0, ((10, None),)),
        (1, 0.5, ((20, None),)),
        (0, 0.25, ((30, None),)),
    ]
    slow = discriminative([low, top], head=head, head_scale=0.01, factor=2.0)
    assert [scale for _, scale, _ in table(slow, members)] == [0.01, 1.0, 0.5]
    # fastai: slice(lr / 2.6**4, lr) over embeddings, three LSTMs and the head.
    published = discriminative(layers(4), head=head, factor=2.6, below_head=True)
    assert [group.scale for group in published] == pytest.approx([1, 1 / 2.6, 2.6**-2, 2.6**-3, 2.6**-4])
    # Without a head the top layer is trained from the first step; without unfreezing all are.
    assert [group.spans for group in discriminative([low, top], unfreeze_every=10)] == [((0, None),), ((10, None),)]
    for everything in ({}, {"unfreezing": "none", "unfreeze_every": 10}, {"unfreezing": "chain_thaw"}):
        groups = discriminative([low, top], head=head, **everything)
        assert {group.spans for group in groups} == {ALWAYS}


def test_chain_thaw_trains_the_head_then_each_group_from_the_bottom_then_all():
    low, middle, top, head = members = layers(4)
    groups = discriminative([low, middle, top], head=head, factor=2.0, unfreezing="chain_thaw", unfreeze_every=10)
    assert table(groups, members) == [
        (3, 1.0, ((0, 10), (40, None))),
        (2, 1.0, ((30, 40), (40, None))),
        (1, 0.5, ((20, 30), (40, None))),
        (0, 0.25, ((10, 20), (40, None))),
    ]
    order = [
        [place for place, _, _ in table([g for g in groups if g.learns(step)], members)] for step in range(0, 50, 10)
    ]
    assert order == [[3], [0], [1], [2], [3, 2, 1, 0]]
    without = discriminative([low, top], unfreezing="chain_thaw", unfreeze_every=5)
    assert [group.spans for group in without] == [((5, 10), (10, None)), ((0, 5), (10, None))]
