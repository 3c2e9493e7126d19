"""ELECTRA against independent implementations of its two networks with the same weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from components.errors import ConfigError
from components.models.electra import ELECTRA
from components.models.encoder import build_model
from components.tokenization.special import MASK
from components.training.masking import mask_texts
from tests.models.peers import part_of, peer_of, wild_model

VOCABULARY = 40
SIZES = {"width": 32, "layers": 3, "heads": 4, "positions": 12, "embedding": 6, "generator": 0.5, "generator_layers": 2}


@pytest.fixture
def model() -> ELECTRA:
    model = wild_model("electra", vocabulary=VOCABULARY, **SIZES)
    assert isinstance(model, ELECTRA)
    return model


@pytest.fixture
def batch() -> dict[str, Tensor]:
    return {
        # Without piece 0, because padding has no gradient in the peer.
        "tokens": torch.randint(1, VOCABULARY, (3, 10)),
        "segments": (torch.arange(10) > 4).long().expand(3, -1),
        "positions": torch.tensor([[1, 4], [2, 9], [3, 5]]),
        "targets": torch.randint(1, VOCABULARY, (3, 2)),
        "noise": torch.rand(3, 2),
    }


def samples(logits_BMV: Tensor, noise_BM: Tensor) -> Tensor:
    """By the definition: the first piece at which the distribution function exceeds the noise."""
    functions = logits_BMV.detach().double().softmax(-1).numpy().cumsum(-1)
    return torch.from_numpy((functions <= noise_BM.double().numpy()[..., None]).sum(-1))


def test_loss_and_gradients_are_those_of_the_two_networks(model: ELECTRA, batch: dict[str, Tensor]) -> None:
    generator, discriminator = part_of(model, "generator"), peer_of(model)
    columns = batch["positions"]
    labels = torch.full_like(batch["tokens"], -100).scatter(1, columns, batch["targets"])
    predicted = generator(batch["tokens"], token_type_ids=batch["segments"], labels=labels)
    sampled = samples(predicted.logits.gather(1, columns[..., None].expand(-1, -1, VOCABULARY)), batch["noise"])
    # One sample is the original piece, so it is not replaced.
    batch["targets"][1, 0] = sampled[1, 0]
    labels = labels.scatter(1, columns, batch["targets"])
    predicted = generator(batch["tokens"], token_type_ids=batch["segments"], labels=labels)
    replaced = torch.zeros_like(labels).scatter(1, columns, (sampled != batch["targets"]).long())
    assert int(replaced.sum()) == 5
    corrupted = batch["tokens"].scatter(1, columns, sampled)
    detected = discriminator(corrupted, token_type_ids=batch["segments"], labels=replaced)

    result = model.losses(batch)
    expected = predicted.loss + 50 * detected.loss
    torch.testing.assert_close(result.loss, expected, atol=1e-4, rtol=1e-5)
    for name, value, count in (("tokens", predicted.loss, 6), ("replaced", detected.loss, 30)):
        total, targets = result.sums[name]
        torch.testing.assert_close(total / targets, value.detach(), atol=1e-5, rtol=1e-5)
        assert int(targets) == count
    result.loss.backward()
    expected.backward()
    shared = sum(peer.electra.embeddings.word_embeddings.weight.grad for peer in (generator, discriminator))
    # A sample may be piece 0.
    torch.testing.assert_close(model.token.grad[1:], shared[1:], atol=1e-4, rtol=1e-4)
    for ours, theirs in ((model.blocks, discriminator), (model.generator_blocks, generator)):
        expected = theirs.electra.encoder.layer[1].intermediate.dense.weight.grad
        torch.testing.assert_close(ours[1].expand.weight.grad, expected, atol=1e-4, rtol=1e-4)


def test_no_gradient_flows_from_the_discriminator_to_the_generator(model: ELECTRA, batch: dict[str, Tensor]) -> None:
    gradients = []
    for weight in (50.0, 1.0):
        model.config = model.config.model_copy(update={"discriminator_weight": weight})
        model.zero_grad()
        model.losses(batch).loss.backward()
        gradients.append((model.generator_blocks[0].expand.weight.grad.clone(), model.detect.weight.grad.clone()))
    (generator, discriminator), (same, smaller) = gradients
    assert torch.equal(generator, same)
    torch.testing.assert_close(discriminator, 50 * smaller)


def test_predictions_and_detections_are_those_of_the_peers(model: ELECTRA) -> None:
    lengths = torch.tensor([10, 6, 3])
    mask = torch.arange(10) < lengths[:, None]
    tokens = torch.randint(5, VOCABULARY, (3, 10)) * mask
    expected = peer_of(model)(tokens, attention_mask=mask.long()).logits
    found = model.replaced_logits(tokens, lengths)
    torch.testing.assert_close(found[mask], expected[mask], atol=1e-4, rtol=1e-4)
    expected = part_of(model, "generator")(tokens[:1]).logits
    torch.testing.assert_close(model.predict(tokens[:1])[0], expected, atol=1e-4, rtol=1e-4)


def test_the_objective_on_texts_is_that_of_pretraining(model: ELECTRA) -> None:
    lengths = torch.tensor([9, 5])
    tokens = torch.randint(5, VOCABULARY, (2, 9)) * (torch.arange(9) < lengths[:, None])
    rngs = [np.random.default_rng(row) for row in range(2)]
    batch = {"tokens": tokens, "lengths": lengths}
    batch |= mask_texts(tokens.numpy(), lengths.numpy(), rngs, vocabulary=VOCABULARY)
    total, count = model.text_loss(batch, model.hidden_states(tokens, lengths))
    expected = 0.0
    for row, length in enumerate(lengths.tolist()):
        here = batch["masked_targets"][row] >= 0
        columns, originals = batch["masked_positions"][row][here], batch["masked_targets"][row][here]
        logits = model.predict(batch["masked_tokens"][row : row + 1, :length])[0][0, columns]
        corrupted = tokens[row, :length].clone()
        corrupted[columns] = samples(logits, batch["masked_noise"][row][here])
        labels = torch.zeros(length).index_put((columns,), (corrupted[columns] != originals).float())
        found = model.replaced_logits(corrupted[None], torch.tensor([length]))[0]
        expected += float(F.binary_cross_entropy_with_logits(found, labels, reduction="sum").detach())
    assert int(count) == 14
    assert float(total.detach()) == pytest.approx(expected, rel=1e-4)
    total.backward()
    assert model.generator_blocks[0].expand.weight.grad is None
    assert model.blocks[0].expand.weight.grad is not None


def test_a_generator_whose_heads_do_not_divide_its_width() -> None:
    with pytest.raises(ConfigError, match=r"generator 0\.336 of width 384 is 129.*choose a fraction that gives a mult"):
        build_model("electra", vocabulary=VOCABULARY, settings={"width": 384, "generator": 0.336})


@pytest.mark.parametrize(
    ("preset", "width", "masking"), [("small", 64, 0.15), ("base", 256, 0.15), ("large", 256, 0.25)]
)
def test_generators_of_the_presets(preset: str, width: int, masking: float) -> None:
    with torch.device("meta"):
        config = build_model("electra", vocabulary=30522, preset=preset).config
    small = config.of_generator()
    assert (small.width, small.head_count, small.layers) == (width, width // 64, config.layers)
    assert config.masking == masking


def test_the_discriminator_learns_which_pieces_are_replaced() -> None:
    torch.manual_seed(0)
    model = build_model("electra", vocabulary=VOCABULARY, settings=SIZES | {"embedding": 32, "layers": 1}).eval()
    tokens = torch.randint(5, VOCABULARY, (8, 10))
    positions = torch.stack([torch.randperm(10)[:3].sort().values for _ in range(8)])
    batch = {"tokens": tokens.scatter(1, positions, MASK), "segments": torch.zeros_like(tokens), "positions": positions}
    batch |= {"targets": tokens.gather(1, positions), "noise": torch.rand(8, 3)}
    # With a fixed generator, so that the same pieces are replaced in every step.
    learning = [*model.blocks.parameters(), *model.detect.parameters(), *model.detect_output.parameters()]
    optimizer = torch.optim.AdamW(learning, lr=0.003)
    losses = []
    for _ in range(100):
        result = model.losses(batch)
        optimizer.zero_grad()
        result.loss.backward()
        optimizer.step()
        losses.append(float(result.sums["replaced"][0]) / 80)
    assert losses[0] == pytest.approx(np.log(2), abs=0.02)
    # A model that knows the share of replaced pieces only has a loss near 0.61.
    assert losses[-1] < 0.1
