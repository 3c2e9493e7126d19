"""BERT against an independent implementation with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from components.models.bert import BERT
from components.models.encoder import build_model

VOCABULARY = 40


@pytest.fixture
def model() -> BERT:
    model = build_model("bert", vocabulary=VOCABULARY, settings={"width": 16, "layers": 3, "heads": 4, "positions": 12})
    assert isinstance(model, BERT)
    # With std 0.02 every layer is close to the identity, and differences would not show.
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.fixture
def batch() -> dict[str, Tensor]:
    return {
        # Without piece 0, because padding has no gradient in the peer.
        "tokens": torch.randint(1, VOCABULARY, (3, 10)),
        "segments": (torch.arange(10) > 4).long().expand(3, -1),
        "positions": torch.tensor([[1, 4], [2, 9], [3, 5]]),
        "targets": torch.randint(0, VOCABULARY, (3, 2)),
        "next_sentence": torch.tensor([0, 1, 1]),
    }


def test_objectives_are_averaged_separately(model: BERT, batch: dict[str, Tensor]) -> None:
    result = model.losses(batch)
    masked_loss, masked = result.sums["tokens"]
    next_loss, rows = result.sums["next_sentence"]
    assert (int(masked), int(rows), result.carry) == (6, 3, ())
    torch.testing.assert_close(result.loss.detach(), masked_loss / 6 + next_loss / 3)
