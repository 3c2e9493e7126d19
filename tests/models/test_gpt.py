"""GPT: the key-value cache, attention within a band, initial weights."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from components.core.errors import ConfigError
from components.models.encoder import build_model, load_weights, save_weights
from components.models.gpt import GPT
from components.models.layers.attention import SelfAttention
from tests.models.peers import wild_model

VOCABULARY = 30
SMALL = {"width": 16, "layers": 4, "heads": 2, "positions": 20}
VARIANTS: dict[str, dict[str, Any]] = {
    "gpt": {"norm": "post"},
    "gpt2": {},
    "gpt3": {"band": 3},
    "gpt3 that sees itself": {"band": 1},
    "without bias": {"output_bias": False},
    "llama": {},
    "llama within a band": {"band": 3, "feedforward": 24},
}


@pytest.fixture(params=list(VARIANTS))
def model(request: pytest.FixtureRequest) -> GPT:
    family = "llama" if request.param.startswith("llama") else "gpt"
    return wild_model(family, vocabulary=VOCABULARY, **SMALL, **VARIANTS[request.param])


def test_prediction_with_the_cache_equals_prediction_without(model):
    tokens = torch.randint(0, VOCABULARY, (2, 12))
    whole, _ = model.predict(tokens)
    assert whole.shape == (2, 12, VOCABULARY)
    for lengths in ([1] * 12, [5, 1, 1, 5], [1, 11]):
        carry: tuple[Tensor, ...] = ()
        parts = []
        for part in tokens.split(lengths, dim=1):
            logits, carry = model.predict(part, carry)
            parts.append(logits)
            assert all(tensor.shape[0] == 2 for tensor in carry)
        torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("length", [2, 3, 4, 6, 7, 11])
@pytest.mark.parametrize("dropout", [0.0, 1e-9])
def test_attention_within_a_band_equals_dense_attention_with_its_mask(length, dropout):
    # A dropout rate close to 0 selects attention from separate operators.
    banded = SelfAttention(8, 2, dropout=dropout, causal=True, band=3)
    x = torch.randn(2, length, 8)
    q, k, v = banded.query_key_value(x).view(2, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
    scores = q @ k.mT / math.sqrt(4)
    age = torch.arange(length)[:, None] - torch.arange(length)
    scores = scores.masked_fill((age < 0) | (age >= 3), -math.inf)
    expected = banded.output((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, length, 8))
    torch.testing.assert_close(banded(x), expected, atol=1e-6, rtol=1e-5)


def test_a_text_longer_than_the_positions():
    model = wild_model("gpt", vocabulary=VOCABULARY, **SMALL)
    assert model.max_tokens == 20
    message = r"a text of 21 pieces is longer than the model's 20 positions; shorten it, or train a model with more"
    with pytest.raises(ConfigError, match=message):
        model.hidden_states(torch.zeros(1, 21, dtype=torch.int64), torch.tensor([21]))
    _, carry = model.predict(torch.zeros(1, 20, dtype=torch.int64))
    with pytest.raises(ConfigError, match=message):
        model.predict(torch.zeros(1, 1, dtype=torch.int64), carry)


def with_task_tokens(**settings: Any) -> GPT:
    model = wild_model("gpt", vocabulary=VOCABULARY, **SMALL, **settings)
    model.add_task_tokens()
    return model


def test_tasks_have_start_delimiter_and_extract_tokens_of_their_own():
    model = with_task_tokens()
    assert model.special_tokens([7, 8]) == [30, 7, 8, 32]
    assert model.pair_tokens([7, 8], [9]) == ([30, 7, 8, 31, 9, 32], [0, 0, 0, 0, 1, 1])
    assert model.task is not None and model.task.shape == (3, SMALL["width"])
    assert model.config.vocabulary == VOCABULARY and model.token.shape[0] == VOCABULARY
    assert 0.5 * 0.02 < model.task.std() < 2 * 0.02, "randomly initialised"
    rows = model.task.detach().clone()
    model.add_task_tokens()
    torch.testing.assert_close(model.task, rows)
    # The rows do not depend on the seed.
    torch.testing.assert_close(with_task_tokens(norm="post").task, model.task)
    tokens, lengths = torch.tensor([model.special_tokens([7, 8])]), torch.tensor([4])
    hidden = model.hidden_states(tokens, lengths)
    expected = torch.stack([rows[0], model.token[7], model.token[8], rows[2]]) + model.position[:4]
    torch.testing.assert_close(hidden[0][0], expected)
    torch.testing.assert_close(model.summary(hidden[-1], lengths)[0], hidden[-1][0, 3])


def test_the_auxiliary_loss_predicts_the_delimiter_and_the_extract_token():
    model = with_task_tokens()
    tokens, lengths = torch.tensor([[30, 7, 31, 9, 32], [30, 8, 32, 0, 0]]), torch.tensor([5, 3])
    hidden = model.hidden_states(tokens, lengths)
    total, count = model.text_loss({"tokens": tokens, "lengths": lengths}, hidden)
    logits = hidden[-1] @ torch.cat([model.token, model.task]).T + F.pad(model.bias, (0, 3))
    targets = torch.tensor([[7, 31, 9, 32], [8, 32, -100, -100]])
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), targets.flatten(), reduction="sum")
    assert count == 6
    torch.testing.assert_close(total, expected, atol=1e-4, rtol=1e-5)


def test_weights_without_task_tokens_load_and_weights_with_them_keep_them(tmp_path):
    plain = wild_model("gpt", vocabulary=VOCABULARY, **SMALL)
    assert "task" not in plain.state_dict()
    save_weights(tmp_path / "plain.safetensors", plain)
    loaded = build_model("gpt", vocabulary=VOCABULARY, settings=SMALL)
    load_weights(tmp_path / "plain.safetensors", loaded)
    model = with_task_tokens()
    with torch.no_grad():
        model.task += 1
    save_weights(tmp_path / "task.safetensors", model)
    again = build_model("gpt", vocabulary=VOCABULARY, settings=model.config.model_dump(exclude={"vocabulary"}))
    load_weights(tmp_path / "task.safetensors", again)
    torch.testing.assert_close(again.task, model.task)
