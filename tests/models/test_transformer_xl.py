"""Transformer-XL: segments with memory against the whole text, and against piece-by-piece evaluation."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from components.core.errors import ConfigError
from components.models.encoder import build_model
from components.models.transformer_xl import TransformerXL, TransformerXLConfig
from tests.models.peers import wild_model

VOCABULARY = 40
SMALL = {"width": 16, "layers": 3, "heads": 4, "feedforward": 40}
ROWS, LENGTH = 2, 12
#: Variants of the model.
VARIANTS: list[dict[str, Any]] = [
    {},
    {"tied_biases": False, "clamp": 4},
    {"cutoffs": [10, 25]},
    {"cutoffs": [10, 25], "divide": 2},
    {"cutoffs": [10, 25], "divide": 2, "output_projection": True, "same_length": True},
]


def small(**settings: Any) -> TransformerXL:
    model = wild_model("transformer-xl", vocabulary=VOCABULARY, **SMALL, **settings)
    assert isinstance(model, TransformerXL)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.fill_(1)
            elif "attention." in name:
                # Large attention outputs, so that the memory makes a difference.
                parameter.mul_(3)
    return model


@pytest.fixture
def text() -> Tensor:
    return torch.randint(VOCABULARY, (ROWS, LENGTH + 1))


def nats_by_segments(model: TransformerXL, text: Tensor, lengths: list[int]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Summed loss over consecutive segments of these lengths, and the carry."""
    total, carry = torch.zeros(()), ()
    for tokens, targets in zip(text[:, :-1].split(lengths, 1), text[:, 1:].split(lengths, 1), strict=True):
        result = model.losses({"tokens": tokens, "targets": targets}, carry)
        total, carry = total + result.sums["tokens"][0], result.carry
    return total, carry


@pytest.mark.parametrize("settings", VARIANTS)
@pytest.mark.parametrize("lengths", [[4, 4, 4], [1, 5, 2, 4], [1] * LENGTH])
def test_segments_with_full_memory_equal_the_whole_text(settings, lengths, text):
    model = small(memory=LENGTH, **settings)
    whole, _ = nats_by_segments(model, text, [LENGTH])
    parts, carry = nats_by_segments(model, text, lengths)
    torch.testing.assert_close(parts, whole, atol=1e-4, rtol=1e-5)
    for memory, inputs in zip(carry, model.hidden_states(text[:, :-1], torch.tensor([LENGTH] * ROWS)), strict=False):
        torch.testing.assert_close(memory, inputs, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("settings", VARIANTS)
@pytest.mark.parametrize("memory", [5, LENGTH])
def test_prediction_piece_by_piece_equals_evaluation_piece_by_piece(settings, memory, text):
    """Cached keys and values against cached inputs of the blocks."""
    model = small(memory=memory, **settings)
    by_losses, _ = nats_by_segments(model, text, [1] * LENGTH)
    total, carry = torch.zeros(()), ()
    for position in range(LENGTH):
        logits, carry = model.predict(text[:, position : position + 1], carry)
        assert logits.shape == (ROWS, 1, VOCABULARY)
        total = total + nn.functional.cross_entropy(logits[:, 0], text[:, position + 1], reduction="sum")
    torch.testing.assert_close(total, by_losses, atol=1e-4, rtol=1e-5)
    assert [keys.shape for keys in carry] == [(ROWS, memory, 32)] * 3


def test_the_memory_of_evaluation_may_differ(text):
    model = small(memory=2, evaluation_memory=LENGTH)
    assert model.memory == LENGTH
    assert model.train().memory == 2
    model.eval()
    whole, _ = nats_by_segments(model, text, [LENGTH])
    torch.testing.assert_close(nats_by_segments(model, text, [3] * 4)[0], whole, atol=1e-4, rtol=1e-5)
    model.set_memory(4)
    assert model.memory == 4
    short, carry = nats_by_segments(model, text, [3] * 4)
    assert abs(short - whole) > 0.5
    assert carry[0].shape == (ROWS, 4, 16)
    model.set_memory(0)
    alone, carry = nats_by_segments(model, text, [3] * 4)
    assert carry == ()
    apart = sum(nats_by_segments(model, text[:, at : at + 4], [3])[0] for at in range(0, LENGTH, 3))
    torch.testing.assert_close(alone, torch.as_tensor(apart), atol=1e-4, rtol=1e-5)
    # It is part of the saved config.
    assert model.config.evaluation_memory == 0


def test_invalid_settings():
    with pytest.raises(ValueError, match=r"cutoffs \[20, 20\] are not increasing"):
        TransformerXLConfig(vocabulary=1, cutoffs=(20, 20))
    with pytest.raises(ConfigError, match="evaluation_memory: Input should be greater than or equal to 0"):
        build_model("transformer-xl", vocabulary=10, settings={"evaluation_memory": -1})
