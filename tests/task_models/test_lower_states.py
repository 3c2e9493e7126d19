"""Outputs of frozen lower layers that are kept: the layers above give what the whole encoder gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from components.learners.task_models import lower_states
from components.learners.task_models.base import Encoded
from components.learners.task_models.lower_states import LowerStates
from components.learners.task_models.model import states_by_length
from components.learners.task_models.sampler import collate
from components.models import FAMILIES
from components.models.encoder import build_model

ROWS = [Encoded.of_texts([[2, *range(10, 10 + size), 3]]) for size in (3, 9, 4, 1)]


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    sizes = FAMILIES["bert"].tiny | {"layers": 3}
    return build_model("bert", vocabulary=40, settings=sizes).eval()


@pytest.mark.parametrize("depth", [0, 2])
def test_the_layers_above_give_the_same_states(encoder, depth: int) -> None:
    batch = collate(ROWS)
    kept = LowerStates(encoder, ROWS, depth=depth)
    whole = states_by_length(encoder, batch)[-1]
    above = states_by_length(encoder, batch, lower=kept)[-1]
    for row, length in enumerate(batch["lengths"].tolist()):
        torch.testing.assert_close(above[row, :length], whole[row, :length], rtol=1e-4, atol=1e-5)
    # Only the layers above are computed.
    above.sum().backward()
    assert encoder.token.grad is None
    assert [any(each.grad is not None for each in block.parameters()) for block in encoder.blocks] == [
        number >= depth for number in range(3)
    ]


def test_other_texts_and_too_many_texts_are_not_kept(encoder, monkeypatch) -> None:
    kept = LowerStates(encoder, ROWS[:2], depth=1)
    tokens, lengths = (collate(ROWS)[name] for name in ("tokens", "lengths"))
    assert kept.of(tokens, lengths) is None
    assert kept.of(tokens[:2], lengths[:2]).shape == (2, tokens.shape[1], encoder.config.width)
    monkeypatch.setattr(lower_states, "MOST_PIECES", int(np.sum([len(row.pieces[0]) for row in ROWS])) - 1)
    assert LowerStates(encoder, ROWS, depth=1).of(tokens, lengths) is None
