"""Parameter groups: rates, decay and unfreezing."""

from __future__ import annotations

import torch
from torch import nn

from components.training.groups import decayed, discriminative


def test_vectors_do_not_decay_and_tied_parameters_stand_once() -> None:
    matrix, vector = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    matrices, vectors = decayed([matrix, vector, matrix])
    assert matrices.parameters == [matrix]
    assert vectors.parameters == [vector]
    assert (matrices.weight_decay, vectors.weight_decay) == (None, 0.0)


def test_discriminative_rates_and_gradual_unfreezing() -> None:
    low, middle, top, head = (nn.Parameter(torch.ones(2, 2)) for _ in range(4))
    groups = discriminative([[low], [middle], [top]], head=[head], factor=2.0, unfreeze_every=10)
    table = [
        (group.parameters[0] is wanted, group.scale, group.starts_at)
        for group, wanted in zip(groups, (head, top, middle, low), strict=True)
    ]
    assert table == [(True, 1.0, 0), (True, 1.0, 10), (True, 0.5, 20), (True, 0.25, 30)]
    # Without a head the top layer learns from the start; without unfreezing everything does.
    assert [group.starts_at for group in discriminative([[low], [top]], unfreeze_every=10)] == [0, 10]
    assert {group.starts_at for group in discriminative([[low], [top]], head=[head])} == {0}
