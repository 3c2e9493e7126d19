"""The language-model objective on labelled texts against `predict` and `losses` of each family."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.core.errors import ConfigError
from components.models import FAMILIES
from components.models.base import Batch, LanguageModel
from components.models.encoder import build_model
from components.models.layers.masked import pair_loss
from tests.models.conftest import VOCABULARY

CAUSAL = ["ulmfit", "gpt", "llama", "transformer-xl"]


def labelled(texts: tuple[Tensor, Tensor]) -> Batch:
    return {"tokens": texts[0], "lengths": texts[1]}


def row(batch: Batch, index: int) -> Batch:
    """One text, without padding."""
    length = int(batch["lengths"][index])
    return {"tokens": batch["tokens"][index : index + 1, :length], "lengths": batch["lengths"][index : index + 1]}


def text_loss(model: LanguageModel, batch: Batch) -> tuple[Tensor, Tensor]:
    return model.text_loss(batch, model.hidden_states(batch["tokens"], batch["lengths"]))


@pytest.mark.parametrize("name", CAUSAL)
def test_padding_and_other_rows_have_no_influence(model, name, texts):
    model.eval()
    batch = labelled(texts)
    total, count = text_loss(model, batch)
    alone = [text_loss(model, row(batch, index)) for index in range(len(batch["lengths"]))]
    assert int(count) == sum(int(number) for _, number in alone) > 0
    assert float(total.detach()) == pytest.approx(sum(float(part.detach()) for part, _ in alone), rel=1e-4)


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_families_predict_the_next_piece_as_predict_does(model, name, texts):
    model.eval()
    batch = row(labelled(texts), 0)
    tokens = batch["tokens"]
    with torch.no_grad():
        logits, _ = model.predict(tokens[:, :-1])
        expected = F.cross_entropy(logits.flatten(0, 1), tokens[0, 1:], reduction="sum")
        total, count = text_loss(model, batch)
    assert int(count) == tokens.shape[1] - 1
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)


def test_a_backward_model_predicts_the_piece_before(texts):
    torch.manual_seed(3)
    backward = build_model("ulmfit", vocabulary=VOCABULARY, settings={"direction": "backward"}).eval()
    forward = build_model("ulmfit", vocabulary=VOCABULARY).eval()
    forward.load_state_dict(backward.state_dict())
    batch = row(labelled(texts), 0)
    turned = batch | {"tokens": batch["tokens"].flip(1)}
    torch.testing.assert_close(text_loss(backward, batch), text_loss(forward, turned))


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - set(CAUSAL)))
def test_families_without_the_objective(model, name, texts):
    with pytest.raises(ConfigError, match="lm_weight"):
        text_loss(model, labelled(texts))


def test_a_row_without_a_pair_adds_nothing_to_the_loss():
    top_BTD = torch.randn(3, 4, 8)
    pooler, output = nn.Linear(8, 8), nn.Linear(8, 2)
    total, count = pair_loss(top_BTD, pooler, output, torch.tensor([0, -100, 1]))
    alone, _ = pair_loss(top_BTD[[0, 2]], pooler, output, torch.tensor([0, 1]))
    assert float(total.detach()) == pytest.approx(float(alone.detach()), rel=1e-6)
    assert int(count) == 3
    nothing, count = pair_loss(top_BTD, pooler, output, torch.full((3,), -100))
    assert (float(nothing.detach()), int(count)) == (0, 3)
