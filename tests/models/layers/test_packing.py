"""States of packed texts equal those of the texts alone."""

import pytest
import torch
from torch import Tensor

from components.models.base import LanguageModel
from components.models.layers.packing import packing
from tests.models.peers import wild_model

#: Family -> the function that packs its texts.
FAMILIES = {
    "bert": "layers.masked.packing",
    "roberta": "layers.masked.packing",
    "albert": "layers.masked.packing",
    "gpt": "gpt.packing",
    "transformer": "transformer.packing",
    "transformer-xl": "transformer_xl.packing",
    "xlnet": "xlnet.packing",
}
LENGTHS = torch.tensor([2, 8, 3, 5, 1])


def model_of(family: str) -> LanguageModel:
    positions = {} if family in ("transformer-xl", "xlnet") else {"positions": 8}
    return wild_model(family, vocabulary=30, width=16, layers=2, heads=2, **positions)


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(1, 30, (5, 8), generator=torch.Generator().manual_seed(1))


def test_longest_text_first_each_into_the_emptiest_row():
    packed = packing(torch.tensor([1, 4, 2, 3]), 4)
    tokens = torch.tensor([[10, 0, 0, 0], [20, 21, 22, 23], [30, 31, 0, 0], [40, 41, 42, 0]])
    # Three rows of 4 are 1/6 empty; two rows of 5 are full.
    assert packed.pack(tokens).tolist() == [[20, 21, 22, 23, 10], [40, 41, 42, 30, 31]]
    assert packed.positions.tolist() == [[0, 1, 2, 3, 0], [0, 1, 2, 0, 1]]
    assert packed.mask[0, 0].int().tolist() == [*[[1, 1, 1, 1, 0]] * 4, [0, 0, 0, 0, 1]]
    assert packed.mask[1, 0].int().tolist() == [*[[1, 1, 1, 0, 0]] * 3, *[[0, 0, 0, 1, 1]] * 2]


@pytest.mark.parametrize("seed", range(5))
def test_every_piece_is_packed_once_and_few_positions_are_empty(seed):
    lengths = torch.randint(1, 30, (12,), generator=torch.Generator().manual_seed(seed))
    columns = int(lengths.max())
    inside = torch.arange(columns) < lengths[:, None]
    tokens = torch.arange(1, inside.numel() + 1).view(inside.shape)
    packed = packing(lengths, columns)
    rows = packed.pack(tokens)
    assert torch.equal(packed.unpack(rows.unsqueeze(-1)).squeeze(-1)[inside], tokens[inside])
    assert int(lengths.sum()) >= 0.95 * rows.numel()
    owners = (rows - 1) // columns
    together = owners[:, :, None] == owners[:, None, :]
    # Empty positions hold the first piece, and attend only to each other.
    real = torch.zeros(rows.numel(), dtype=torch.bool)
    real[packed.targets[inside]] = True
    real = real.view(rows.shape)
    both = real[:, :, None] & real[:, None, :]
    assert torch.equal(packed.mask[:, 0] & both, together & both)
    assert not bool((packed.mask[:, 0] & (real[:, :, None] != real[:, None, :])).any())
    assert bool(packed.mask[:, 0].any(-1).all())
    positions = torch.arange(columns).expand(len(lengths), -1)
    assert torch.equal(packed.pack(positions)[real], packed.positions[real])


def test_no_packing_with_little_padding():
    assert packing(torch.tensor([5, 5, 5]), 5) is None
    # 4 of 80 positions are 5%.
    assert packing(torch.tensor([20, 20, 20, 16]), 20) is None
    assert packing(torch.tensor([20, 20, 20, 15]), 20) is not None
    # Attention over one row of 440 costs more than the padding.
    assert packing(torch.tensor([200, 150, 150]), 200) is None
    assert packing(torch.tensor([200, 56, 150]), 200) is not None


@pytest.mark.parametrize("family", FAMILIES)
def test_states_and_gradients_equal_those_of_padded_rows(family, tokens, monkeypatch):
    model = model_of(family)
    segments = (torch.arange(8) > torch.arange(5)[:, None]).long() if family in ("bert", "albert") else None
    inside = torch.arange(8) < LENGTHS[:, None]
    weights = torch.randn(int(inside.sum()), 16)

    def read():
        model.zero_grad()
        layers = [layer[inside] for layer in model.hidden_states(tokens, LENGTHS, segments)]
        (layers[-1] * weights).sum().backward()
        return layers, {name: each.grad for name, each in model.named_parameters() if each.grad is not None}

    rows: list[int] = []
    first = model.blocks[0] if hasattr(model, "blocks") else model.block
    first.register_forward_hook(lambda _, inputs, __: rows.append(len(inputs[0])))
    packed = read()
    monkeypatch.setattr(f"components.models.{FAMILIES[family]}", lambda *_: None)
    padded = read()
    # 19 pieces in two rows of 10, not in five of 8.
    assert set(rows) == {2, 5}
    torch.testing.assert_close(packed[0], padded[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(packed[1], padded[1], atol=1e-4, rtol=1e-4)
