"""Options of the Transformer encoders, all at once: the contract of a family, and what each of them changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from components.errors import ArtifactError, ConfigError
from components.interchange.huggingface import CONVERTERS
from components.models import FAMILIES
from components.models.base import LanguageModel
from components.models.encoder import build_model
from components.models.layers.packing import packing
from components.models.roberta import RoBERTa, RoBERTaConfig
from components.pretraining.perplexity import heldout_sampler
from components.pretraining.rows import FullSentencesSampler
from components.tokenization import load_tokenizer
from components.tokenization.special import END, MASK, START
from components.training.matrices import hidden_matrices
from tests.models.conftest import VOCABULARY, BatchOf, TinyStore
from tests.models.peers import wild_model
from tests.models.test_contract import (  # noqa: F401 (collected here, with the fixtures of this module)
    test_a_loaded_model_equals_the_saved_one,
    test_a_remapped_model_still_learns,
    test_dropout_can_be_turned_off_and_on,
    test_each_layer_uses_its_group_and_those_below,
    test_every_parameter_learns,
    test_it_learns,
    test_it_runs_with_bfloat16_weights,
    test_layer_groups_cover_what_hidden_states_use,
    test_padding_never_changes_real_positions,
    test_remapping_moves_rows_and_averages_for_new_ones,
)
from tests.training.helpers import numbered_store

OPTIONS: dict[str, Any] = {"norm": "pre", "glu": True, "rotary": True, "biases": False}


@pytest.fixture(params=["bert", "roberta", "electra"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def build(name: str, tokenizer_directory: Callable[..., Path]) -> Callable[..., LanguageModel]:
    def fresh(**settings: Any) -> LanguageModel:
        model = build_model(name, vocabulary=VOCABULARY, settings={**FAMILIES[name].tiny, **OPTIONS, **settings})
        model.bind(load_tokenizer(tokenizer_directory(FAMILIES[name].tokenizers[0])))
        return model

    return fresh


def test_packed_texts_keep_their_positions(name: str) -> None:
    lengths = torch.tensor([2, 8, 3, 5, 1])
    assert packing(lengths, 8) is not None
    sizes = {"width": 16, "layers": 2, "heads": 2, "positions": 8} | OPTIONS
    sizes |= {"generator": 0.5} if name == "electra" else {}
    model = wild_model(name, vocabulary=30, **sizes)
    tokens = torch.randint(5, 30, (5, 8)) * (torch.arange(8) < lengths[:, None])
    together = model.hidden_states(tokens, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model.hidden_states(tokens[row : row + 1, :length], lengths[row : row + 1])
        for left, right in zip(together, alone, strict=True):
            torch.testing.assert_close(left[row, :length], right[0], atol=1e-4, rtol=1e-4)


def test_positions_matter_without_embeddings(name: str, build: Callable[..., LanguageModel]) -> None:
    model = build().eval()
    assert model.position is None
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokens = torch.tensor([[7, 8, 9, 10]])
    states = [model.hidden_states(part, torch.tensor([4]))[-1][0] for part in (tokens, tokens.flip(1))]
    assert not torch.allclose(states[0], states[1].flip(0), atol=1e-3)
    with pytest.raises(ConfigError, match="a text of 25 pieces is longer than the model's 24 positions"):
        model.hidden_states(torch.full((1, 25), 7), torch.tensor([25]))
    with pytest.raises(ConfigError, match="a text of 25 pieces is longer"):
        model.predict(torch.full((1, 25), 7))


def test_initial_weights_of_sums_are_smaller_in_pre_norm_networks() -> None:
    sizes = {"width": 128, "layers": 8, "heads": 2}
    stds = {
        norm: build_model("bert", vocabulary=30, settings={**sizes, "norm": norm}).blocks[3].contract.weight.std()
        for norm in ("pre", "post")
    }
    assert float((stds["pre"] / stds["post"]).detach()) == pytest.approx(1 / 4, rel=0.05)


def test_a_gate_is_a_matrix_of_its_own_for_matrix_optimizers() -> None:
    model = build_model("bert", vocabulary=30, settings={"width": 32, "layers": 1, "heads": 2, "glu": True})
    found = hidden_matrices(model)
    assert found[id(model.blocks[0].expand.weight)] == 2
    assert found[id(model.blocks[0].contract.weight)] == 1


def test_heads_of_odd_width_do_not_rotate() -> None:
    with pytest.raises(ConfigError, match="rotary positions need heads of even width; width 15 and heads 3 give 5"):
        build_model("roberta", vocabulary=30, settings={"width": 15, "heads": 3, "rotary": True})


@pytest.mark.parametrize("option", [*OPTIONS.items(), ("causal", 0.5), ("value_embeddings", 1)])
def test_no_option_has_a_counterpart_in_transformers(option: tuple[str, Any]) -> None:
    key, value = option
    model = build_model("roberta", vocabulary=30, settings={"width": 16, "layers": 2, "heads": 2, key: value})
    with pytest.raises(ArtifactError, match=f"model.{key}: {value} has no counterpart in transformers"):
        CONVERTERS["roberta"].to_huggingface(model)


def test_albert_has_the_options_too(batch_of: BatchOf) -> None:
    model = build_model("albert", vocabulary=VOCABULARY, settings={**FAMILIES["albert"].tiny, **OPTIONS})
    model.losses(batch_of("albert")).loss.backward()
    assert [key for key, parameter in model.named_parameters() if parameter.grad is None] == []


# Masked and causal in one model (GPT-BERT).


def gpt_bert(**settings: Any) -> RoBERTa:
    sizes = {"width": 16, "layers": 2, "heads": 2, "positions": 24, "causal": 0.25}
    model = wild_model("roberta", vocabulary=40, **sizes | settings)
    assert isinstance(model, RoBERTa)
    return model


def test_a_causal_step_predicts_every_next_piece_from_the_text_before() -> None:
    # With one layer, the last position of a text without later pieces is the same in both directions.
    model = gpt_bert(layers=1)
    tokens = torch.randint(5, 40, (3, 9))
    batch = {"tokens": tokens, "positions": torch.arange(1, 9).expand(3, -1), "targets": tokens[:, 1:]}
    total, count = model.losses(batch | {"causal": torch.ones(3, dtype=torch.int64)}).sums["tokens"]
    assert int(count) == 24
    expected = torch.zeros(())
    for length in range(1, 9):
        top = model.run(tokens[:, :length], None, None)[-1][:, -1]
        logits = F.linear(model._transformed(top), model.token, model.bias)
        expected = expected + F.cross_entropy(logits, tokens[:, length], reduction="sum")
    torch.testing.assert_close(total, expected, atol=1e-3, rtol=1e-5)


def test_a_masked_piece_is_predicted_from_the_position_before() -> None:
    model = gpt_bert()
    tokens = torch.randint(5, 40, (2, 9))
    positions, targets = torch.tensor([[3, 8], [1, 5]]), torch.randint(5, 40, (2, 2))
    states = model.run(tokens, None, None)[-1]
    columns = (positions - 1).unsqueeze(-1).expand(-1, -1, 16)
    logits = F.linear(model._transformed(states.gather(1, columns)), model.token, model.bias)
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    found = model.losses({"tokens": tokens, "positions": positions, "targets": targets}).loss
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        model.predict(tokens)[0].gather(1, positions.unsqueeze(-1).expand(-1, -1, 40)), logits, atol=1e-4, rtol=1e-4
    )


def test_causal_steps_are_a_share_of_all_and_evenly_distributed() -> None:
    config = RoBERTaConfig(vocabulary=500, causal=0.25)
    store = numbered_store()
    sampler = FullSentencesSampler(store, batch_size=4, window=12, seed=1, vocabulary=500, config=config)
    causal = [step for step in range(40) if "causal" in sampler.batch(step)]
    assert causal == list(range(3, 40, 4))
    batch = sampler.batch(3)
    assert torch.equal(batch["targets"], batch["tokens"][:, 1:])
    assert batch["positions"].tolist() == [list(range(1, 12))] * 4
    assert batch["causal"].tolist() == [1] * 4
    assert not (batch["tokens"] == MASK).any() and (batch["tokens"][:, [0, -1]] == torch.tensor([START, END])).all()
    # Held-out text is masked, at 15%, in every step.
    config = RoBERTaConfig(vocabulary=500, causal=0.9, masking=0.4)
    heldout = heldout_sampler("roberta", TinyStore(), config=config, pieces=[], batch_size=4, window=20, workers=1)
    assert heldout is not None
    for step in range(4):
        batch = heldout.batch(step)
        assert "causal" not in batch and batch["positions"].shape[1] == round(0.15 * 20)


def test_workers_agree_on_causal_steps() -> None:
    config = RoBERTaConfig(vocabulary=500, causal=0.5)
    sampler = FullSentencesSampler(numbered_store(), batch_size=4, window=12, seed=1, vocabulary=500, config=config)
    whole: dict[str, Tensor] = sampler.batch(1)
    parts = [sampler.batch(1, rank, 2) for rank in range(2)]
    assert all(torch.equal(value, torch.cat([part[key] for part in parts])) for key, value in whole.items())
    assert np.array_equal(whole["tokens"][:, 1:], whole["targets"])
