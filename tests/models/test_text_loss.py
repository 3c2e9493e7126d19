"""The language-model objective on labelled texts against `predict` and `losses` of each family."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from components.errors import ConfigError
from components.models import FAMILIES
from components.models.base import Batch, LanguageModel
from components.models.encoder import build_model
from components.tokenization.special import FIRST_ORDINARY, UNK
from components.training.masking import mask_texts
from tests.models.conftest import VOCABULARY

NEITHER = [name for name, family in FAMILIES.items() if family.objective in ("static", "translation")]
CAUSAL = [name for name, family in FAMILIES.items() if family.objective == "causal"]
MASKED = [name for name, family in FAMILIES.items() if family.objective in ("masked", "permuted")]


def labelled(texts: tuple[Tensor, Tensor], name: str) -> Batch:
    """The texts as a batch with masks."""
    tokens, lengths = texts
    batch = {"tokens": tokens, "lengths": lengths}
    if name in MASKED:
        rngs = [np.random.default_rng(row) for row in range(len(tokens))]
        batch |= mask_texts(tokens.numpy(), lengths.numpy(), rngs, vocabulary=VOCABULARY)
    return batch


def row(batch: Batch, index: int) -> Batch:
    """One text, without padding."""
    length = int(batch["lengths"][index])
    alone = {name: tensor[index : index + 1] for name, tensor in batch.items()}
    return alone | {name: alone[name][:, :length] for name in ("tokens", "masked_tokens") if name in alone}


def text_loss(model: LanguageModel, batch: Batch) -> tuple[Tensor, Tensor]:
    return model.text_loss(batch, model.hidden_states(batch["tokens"], batch["lengths"]))


def test_every_family_has_one_kind_of_objective() -> None:
    assert sorted(NEITHER + CAUSAL + MASKED) == sorted(FAMILIES)


@pytest.mark.parametrize("name", CAUSAL + MASKED)
def test_padding_and_other_rows_have_no_influence(
    model: LanguageModel, name: str, texts: tuple[Tensor, Tensor]
) -> None:
    model.eval()
    batch = labelled(texts, name)
    total, count = text_loss(model, batch)
    alone = [text_loss(model, row(batch, index)) for index in range(len(batch["lengths"]))]
    assert int(count) == sum(int(number) for _, number in alone) > 0
    assert float(total.detach()) == pytest.approx(sum(float(part.detach()) for part, _ in alone), rel=1e-4)


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_families_predict_the_next_piece_as_predict_does(
    model: LanguageModel, name: str, texts: tuple[Tensor, Tensor]
) -> None:
    model.eval()
    batch = row(labelled(texts, name), 0)
    tokens = batch["tokens"]
    with torch.no_grad():
        logits, _ = model.predict(tokens[:, :-1])
        expected = F.cross_entropy(logits.flatten(0, 1), tokens[0, 1:], reduction="sum")
        total, count = text_loss(model, batch)
        if name in ("flair", "elmo"):
            # The backward half is a forward model of the reversed text.
            turned = tokens.flip(1)
            model.forwards, model.backwards = model.backwards, model.forwards
            logits, _ = model.predict(turned[:, :-1])
            expected = expected + F.cross_entropy(logits.flatten(0, 1), turned[0, 1:], reduction="sum")
            assert int(count) == 2 * (tokens.shape[1] - 1)
        else:
            assert int(count) == tokens.shape[1] - 1
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)


def test_a_backward_model_predicts_the_piece_before(texts: tuple[Tensor, Tensor]) -> None:
    torch.manual_seed(3)
    backward = build_model("ulmfit", vocabulary=VOCABULARY, settings={"direction": "backward"}).eval()
    forward = build_model("ulmfit", vocabulary=VOCABULARY).eval()
    forward.load_state_dict(backward.state_dict())
    batch = row(labelled(texts, "ulmfit"), 0)
    turned = batch | {"tokens": batch["tokens"].flip(1)}
    torch.testing.assert_close(text_loss(backward, batch), text_loss(forward, turned))


@pytest.mark.parametrize("name", [name for name in MASKED if name != "xlnet"])
def test_masked_families_fill_in_as_predict_does(model: LanguageModel, name: str, texts: tuple[Tensor, Tensor]) -> None:
    model.eval()
    batch = row(labelled(texts, name), 0)
    with torch.no_grad():
        logits, _ = model.predict(batch["masked_tokens"])
        total, count = text_loss(model, batch)
    real = batch["masked_targets"][0] >= 0
    chosen = logits[0, batch["masked_positions"][0][real]]
    expected = F.cross_entropy(chosen, batch["masked_targets"][0][real], reduction="sum")
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)
    assert int(count) == int(real.sum())


def test_xlnet_predicts_in_the_order_of_the_sampled_positions(texts: tuple[Tensor, Tensor]) -> None:
    torch.manual_seed(3)
    model = build_model("xlnet", vocabulary=VOCABULARY).eval()
    tokens = texts[0][:1]
    positions = torch.tensor([[5, 2]])
    batch = {"tokens": tokens, "lengths": texts[1][:1], "masked_positions": positions}
    batch["masked_targets"] = tokens.gather(1, positions)
    with torch.no_grad():
        total, count = text_loss(model, batch)
        order = torch.zeros_like(tokens).scatter(1, positions, torch.tensor([[1, 2]]))
        segments = torch.zeros_like(tokens)
        losses = model.losses(
            {"tokens": tokens, "segments": segments, "order": order, "positions": positions,
             "targets": batch["masked_targets"]}
        )  # fmt: skip
    assert int(count) == 2
    torch.testing.assert_close(total, losses.sums["tokens"][0])


@pytest.mark.parametrize("name", CAUSAL + MASKED)
def test_gradients_reach_the_encoder(model: LanguageModel, name: str, texts: tuple[Tensor, Tensor]) -> None:
    total, count = text_loss(model.eval(), labelled(texts, name))
    (total / count).backward()
    gradients = [parameter.grad for group in model.layer_groups() for parameter in group]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", NEITHER)
def test_families_without_the_objective(model: LanguageModel, name: str, texts: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ConfigError, match="lm_weight"):
        text_loss(model, labelled(texts, name))


@pytest.mark.parametrize("name", ["elmo"])
def test_targets_outside_the_vocabulary_are_unknown_for_elmo(
    model: LanguageModel, name: str, texts: tuple[Tensor, Tensor]
) -> None:
    tokens = texts[0][:1].clone()
    (unseen,) = model._tokenizer.encode_batch(["zzzz"])[0]  # type: ignore[union-attr, operator]
    assert unseen >= VOCABULARY
    tokens[0, -1] = int(unseen)
    total, _ = text_loss(model.eval(), {"tokens": tokens, "lengths": texts[1][:1]})
    with torch.no_grad():
        hidden = model.hidden_states(tokens, texts[1][:1])
        known, _ = model.text_loss(
            {"tokens": tokens.masked_fill(tokens == unseen, UNK), "lengths": texts[1][:1]}, hidden
        )
    assert float(total.detach()) == pytest.approx(float(known))


def test_masks_are_sampled_per_row() -> None:
    tokens = np.full((3, 40), FIRST_ORDINARY + 3)
    tokens[:, 0] = tokens[:, -1] = 1
    tokens[1, 12:] = 0
    tokens[2, 1:] = 0
    lengths = np.array([40, 12, 1])
    batch = mask_texts(tokens, lengths, [np.random.default_rng(seed) for seed in (5, 6, 7)], vocabulary=VOCABULARY)
    masked, positions, targets = (batch[f"masked_{name}"].numpy() for name in ("tokens", "positions", "targets"))
    assert [(row >= 0).sum() for row in targets] == [6, 2, 1]
    for index, length in enumerate(lengths):
        chosen = positions[index][targets[index] >= 0]
        assert len(set(chosen)) == len(chosen) and (chosen < length).all()
        assert np.array_equal(tokens[index][chosen], targets[index][targets[index] >= 0])
        assert (positions[index][targets[index] < 0] == chosen[0]).all()
        others = np.setdiff1d(np.arange(40), chosen)
        assert np.array_equal(masked[index][others], tokens[index][others])
    # A special piece is predicted only in a text without other pieces.
    assert targets[2, 0] == 1 and (targets[:2] != 1).all()
    alone = mask_texts(tokens[1:2, :12], lengths[1:2], [np.random.default_rng(6)], vocabulary=VOCABULARY)
    assert np.array_equal(alone["masked_tokens"].numpy()[0], masked[1, :12])


def test_masks_follow_the_proportions_of_the_paper() -> None:
    tokens = np.full((200, 200), FIRST_ORDINARY)
    rngs = [np.random.default_rng(row) for row in range(200)]
    batch = mask_texts(tokens, np.full(200, 200), rngs, vocabulary=VOCABULARY)
    disguised = batch["masked_tokens"].gather(1, batch["masked_positions"])
    assert batch["masked_positions"].shape == (200, 30)
    shares = [(disguised == value).float().mean().item() for value in (4, FIRST_ORDINARY)]
    assert shares[0] == pytest.approx(0.8, abs=0.02)
    # Kept, or replaced by the same piece by chance.
    assert shares[1] == pytest.approx(0.1 + 0.1 / (VOCABULARY - FIRST_ORDINARY), abs=0.02)
