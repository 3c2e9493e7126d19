"""The AWD-LSTM: its loss by hand, causality, its five dropouts and its two penalties."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from components.models.encoder import build_model
from components.models.ulmfit import AWDLSTM

VOCABULARY = 30


def small(**settings: Any) -> AWDLSTM:
    model = build_model("ulmfit", vocabulary=VOCABULARY, settings={"embedding": 6, "hidden": 8, "layers": 3} | settings)
    assert isinstance(model, AWDLSTM)
    return model


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    stream = torch.randint(0, VOCABULARY, (4, 11))
    return {"tokens": stream[:, :-1], "targets": stream[:, 1:]}


def test_against_torch_layers(batch: dict[str, torch.Tensor]) -> None:
    model = small()
    nn.init.normal_(model.bias)
    x = F.embedding(batch["tokens"], model.embedding)
    for layer in model.lstms:
        reference = nn.LSTM(layer.weight_ih.shape[1], layer.hidden, batch_first=True)
        values = (layer.weight_ih, layer.weight_hh, layer.bias, torch.zeros_like(layer.bias))
        with torch.no_grad():
            for parameter, value in zip(reference.parameters(), values, strict=True):
                parameter.copy_(value)
        x, _ = reference(x)
    expected = F.cross_entropy(F.linear(x, model.embedding, model.bias).flatten(0, 1), batch["targets"].flatten())
    result = model.eval().losses(batch)
    torch.testing.assert_close(result.loss, expected)
    torch.testing.assert_close(result.sums["tokens"][0], expected * 40)
    assert int(result.sums["tokens"][1]) == 40


def test_the_carry_goes_on_where_the_window_ended(batch: dict[str, torch.Tensor]) -> None:
    model = small().eval()
    whole = model.losses(batch)
    first = model.losses({key: value[:, :4] for key, value in batch.items()})
    second = model.losses({key: value[:, 4:] for key, value in batch.items()}, first.carry)
    torch.testing.assert_close(first.sums["tokens"][0] + second.sums["tokens"][0], whole.sums["tokens"][0])
    torch.testing.assert_close(second.carry, whole.carry)
    assert [tuple(part.shape) for part in whole.carry] == [(4, 8), (4, 8), (4, 8), (4, 8), (4, 6), (4, 6)]


def test_no_state_looks_ahead() -> None:
    model = small().eval()
    tokens = torch.randint(0, VOCABULARY, (1, 9))
    changed = tokens.clone()
    changed[0, 5] = (tokens[0, 5] + 1) % VOCABULARY
    lengths = torch.tensor([9])
    for before, after in zip(model.hidden_states(tokens, lengths), model.hidden_states(changed, lengths), strict=True):
        assert torch.equal(before[:, :5], after[:, :5])
        assert not torch.equal(before[:, 5], after[:, 5])


def test_summary_is_the_last_real_state() -> None:
    hidden = torch.arange(24.0).view(2, 4, 3)
    assert small().summary(hidden, torch.tensor([4, 2])).tolist() == [[9, 10, 11], [15, 16, 17]]


@pytest.mark.parametrize("place", ["embedding", "input", "weight", "hidden", "output"])
def test_each_of_the_five_dropouts_acts(place: str, batch: dict[str, torch.Tensor]) -> None:
    model = small(**{f"dropout_{place}": 0.5})
    still = model.eval().losses(batch).loss
    noisy = model.train().losses(batch).loss
    assert not torch.equal(still, noisy)
    assert sum(module.rate > 0 for module in model.modules() if hasattr(module, "rate")) == (
        3 if place == "weight" else 1
    )


def test_penalties(batch: dict[str, torch.Tensor]) -> None:
    plain, both = small(), small(activation=2.0, slowness=3.0)
    both.load_state_dict(plain.state_dict())
    base = plain.train().losses(batch)
    top = plain.hidden_states(batch["tokens"], torch.full((4,), 10))[-1]
    expected = base.loss + 2 * top.square().mean() + 3 * (top[:, 1:] - top[:, :-1]).square().mean()
    result = both.train().losses(batch)
    torch.testing.assert_close(result.loss, expected)
    # Perplexity is not about the penalties.
    torch.testing.assert_close(result.sums["tokens"][0], base.sums["tokens"][0])
    torch.testing.assert_close(both.eval().losses(batch).loss, base.loss)


def test_start_of_training_is_calm() -> None:
    model = build_model("ulmfit", vocabulary=2000)
    assert isinstance(model, AWDLSTM)
    assert float(model.embedding.detach().std()) == pytest.approx(0.1, rel=0.01)
    tokens = torch.randint(0, 2000, (4, 20))
    loss = model.losses({"tokens": tokens, "targets": tokens}).loss
    assert float(loss.detach()) == pytest.approx(torch.tensor(2000.0).log().item(), abs=0.05)


def test_size_of_the_paper() -> None:
    # Merity et al. 2018: 33,278 words of WikiText-2; published as 33 million parameters (their count of the biases is
    # twice ours: two biases a gate, of which one is enough).
    with torch.device("meta"):
        model = build_model("ulmfit", vocabulary=33278, preset="awd-lstm")
    lstm = sum(4 * width * (inputs + width + 1) for inputs, width in [(400, 1150), (1150, 1150), (1150, 400)])
    assert sum(parameter.numel() for parameter in model.parameters()) == 33278 * 401 + lstm == 33_545_278
