"""Dropout layers: rates, scale, and the shape of their masks."""

import pytest
import torch

from components.models.layers.dropout import Dropout, LockedDropout, RowDropout, WeightDropout, keep_mask


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_rate_and_scale_of_a_mask(rate):
    mask = keep_mask((1000, 999), rate, torch.ones(1))
    # The standard error of the fraction is below 0.0005.
    assert float((mask == 0).float().mean()) == pytest.approx(rate, abs=0.0025)
    assert mask.unique().tolist() == pytest.approx([0, 1 / (1 - rate)], rel=1e-3)
    assert float(mask.mean()) == pytest.approx(1, abs=0.015)


def test_row_dropout_drops_a_word_at_all_its_positions():
    weight = torch.ones(100, 3)
    tokens = torch.arange(100).repeat(2).view(2, 100)
    dropped = RowDropout(0.5)(tokens, weight, weight[tokens])
    assert torch.equal(dropped[0], dropped[1])
    assert torch.equal(dropped, dropped[..., :1].expand(-1, -1, 3))
    assert sorted(dropped.unique().tolist()) == [0, 2]


@pytest.mark.parametrize("kind", [Dropout, LockedDropout, WeightDropout])
def test_scale_and_evaluation(kind):
    layer, x = kind(0.2), torch.ones(500, 1, 400)
    assert float((layer(x) == 0).float().mean()) == pytest.approx(0.2, abs=0.07)
    layer.scale = 2
    assert layer.rate == pytest.approx(0.4)
    layer.scale = 100
    assert layer.rate == 0.95
    layer.scale = 0
    assert torch.equal(layer(x), x)
    layer.scale = 1
    assert torch.equal(layer.eval()(x), x)


def test_locked_dropout_holds_its_mask_over_time():
    dropped = LockedDropout(0.5)(torch.ones(20, 4, 30))
    assert torch.equal(dropped, dropped[:1].expand(20, -1, -1))
    assert not torch.equal(dropped[0, 0], dropped[0, 1])
