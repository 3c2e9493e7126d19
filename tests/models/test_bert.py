"""BERT against an independent implementation with the same weights."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import Tensor, nn

from components.models.bert import BERT
from components.models.encoder import build_model
from components.models.layers.attention import SelfAttention
from components.models.layers.masked import pair_loss
from tests.models.peers import peer_of

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
def peer(model: BERT) -> transformers.BertForPreTraining:
    return peer_of(model)


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


def labels(batch: dict[str, Tensor]) -> Tensor:
    return torch.full_like(batch["tokens"], -100).scatter(1, batch["positions"], batch["targets"])


def test_loss_and_gradients(model: BERT, peer: transformers.BertForPreTraining, batch: dict[str, Tensor]) -> None:
    expected = peer(
        input_ids=batch["tokens"],
        token_type_ids=batch["segments"],
        labels=labels(batch),
        next_sentence_label=batch["next_sentence"],
    ).loss
    result = model.losses(batch)
    torch.testing.assert_close(result.loss, expected, atol=1e-5, rtol=1e-5)
    result.loss.backward()
    expected.backward()
    table = peer.bert.embeddings.word_embeddings.weight.grad
    torch.testing.assert_close(model.token.grad, table, atol=1e-5, rtol=1e-4)
    query = peer.bert.encoder.layer[0].attention.self.query.weight.grad
    torch.testing.assert_close(model.blocks[0].attention.query_key_value.weight.grad[:16], query, atol=1e-5, rtol=1e-4)


def test_hidden_states(model: BERT, peer: transformers.BertForPreTraining, batch: dict[str, Tensor]) -> None:
    lengths = torch.tensor([10, 6, 3])
    mask = torch.arange(10) < lengths[:, None]
    expected = peer.bert(batch["tokens"], attention_mask=mask.long(), output_hidden_states=True).hidden_states
    found = model.hidden_states(batch["tokens"], lengths)
    assert len(found) == len(expected) == 4
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left[mask], right[mask], atol=1e-5, rtol=1e-5)


def test_objectives_are_averaged_separately(model: BERT, batch: dict[str, Tensor]) -> None:
    result = model.losses(batch)
    masked_loss, masked = result.sums["tokens"]
    next_loss, rows = result.sums["next_sentence"]
    assert (int(masked), int(rows), result.carry) == (6, 3, ())
    torch.testing.assert_close(result.loss.detach(), masked_loss / 6 + next_loss / 3)


def test_mean_of_attention_with_dropout_is_attention_without() -> None:
    attention = SelfAttention(8, 2, dropout=0.3)
    x = torch.randn(1, 5, 8)
    mask = torch.tensor([True, True, True, False, True]).view(1, 1, 1, 5)
    still = attention.eval()(x, mask)
    noisy = attention.train()(x.expand(20_000, -1, -1), mask)
    torch.testing.assert_close(noisy.mean(0, keepdim=True), still, atol=0.01, rtol=0)
    assert float(noisy.detach().std(0).mean()) > 0.01


@pytest.mark.parametrize(
    ("preset", "published"),
    # Turc et al. 2019 (BERT-Tiny, Mini, Small, Medium); Devlin et al. 2019 (110M, 340M); with 30,522 pieces.
    [("2x128", 4.4), ("4x256", 11.3), ("4x512", 29.1), ("8x512", 41.7), ("base", 110.1), ("large", 336.2)],
)
def test_sizes_of_the_papers(preset: str, published: float) -> None:
    with torch.device("meta"):
        model = build_model("bert", vocabulary=30522, preset=preset)
    encoder = [
        parameter for name, parameter in model.named_parameters() if not name.startswith(("transform", "next", "bias"))
    ]
    # Most publications count encoder and pooler; the 336.2M of large include the heads.
    counted = model.parameters() if preset == "large" else encoder
    assert sum(parameter.numel() for parameter in counted) / 1e6 == pytest.approx(published, rel=0.02)


def test_all_miniatures_are_presets() -> None:
    from components.models.bert import FAMILY

    assert len([name for name in FAMILY.presets if "x" in name]) == 24


def test_a_row_without_a_pair_adds_nothing_to_the_loss() -> None:
    top_BTD = torch.randn(3, 4, 8)
    pooler, output = nn.Linear(8, 8), nn.Linear(8, 2)
    total, count = pair_loss(top_BTD, pooler, output, torch.tensor([0, -100, 1]))
    alone, _ = pair_loss(top_BTD[[0, 2]], pooler, output, torch.tensor([0, 1]))
    assert float(total.detach()) == pytest.approx(float(alone.detach()), rel=1e-6)
    assert int(count) == 3
    nothing, count = pair_loss(top_BTD, pooler, output, torch.full((3,), -100))
    assert (float(nothing.detach()), int(count)) == (0, 3)
