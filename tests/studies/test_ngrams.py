"""The study ngrams: the perplexity of n-grams on the held-out pieces on which language models are measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from components.cluster.distributed import World
from components.models import FAMILIES
from components.models.encoder import build_model
from components.settings.loading import load_params
from components.settings.pretrain import PretrainSettings
from components.studies.frame import Outputs
from components.studies.ngrams import measured_positions, ngram_nats
from components.studies.ngrams import run as study
from components.tokenization import load_tokenizer
from components.tokenization.store import TokenStore
from components.training.pretraining.perplexity import heldout_sampler, measure
from tests.training.helpers import lm_settings, make_inputs, tokenizer_of

CAUSAL = sorted(name for name in FAMILIES if FAMILIES[name].objective == "causal")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def test_the_numbers(inputs: Path, params_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = yaml.safe_load(params_file.read_text())
    raw["run"]["families"] = ["ulmfit", "bert"]
    (params_file.parent / "out").symlink_to(inputs)
    raw["tokenizer"]["kinds"] = ["wordpiece"]
    for block in raw["pretrain"].values():
        block["tokenizer"] = "wordpiece"
    params_file.write_text(yaml.safe_dump(raw))
    params = load_params(params_file)
    for stage in ("pretrain", "adapt"):
        (inputs / "metrics" / stage).mkdir(parents=True)
        (inputs / "metrics" / stage / "ulmfit.json").write_text(json.dumps({"perplexity_per_word": 64.0}))
    monkeypatch.setattr("components.studies.ngrams.measured_positions", lambda *_: np.arange(200))
    found = study(Outputs(params), order=3, character_order=4)
    assert found.numbers.keys() == {"ulmfit-pretrain", "ulmfit-adapt"}, "a masked model has no comparable perplexity"
    heldout = TokenStore(inputs / "tokens" / "general-wordpiece", "heldout")
    nats = ngram_nats(inputs / "tokens" / "general-wordpiece", order=3, most=10**6)
    numbers = found.numbers["ulmfit-pretrain"]
    expected = np.exp(nats[:200].mean() * heldout.tokens / heldout.words)
    assert numbers["ngrams_per_word"] == pytest.approx(expected) and numbers["model_per_word"] == 64.0
    assert found.chapter.tables[0].rows[0][-1] == f"{expected:,.1f}"


@pytest.mark.parametrize("family", CAUSAL)
def test_the_same_pieces_as_the_language_model(inputs: Path, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = tokenizer_of(family)
    tokens = inputs / "tokens" / f"general-{kind}"
    store = TokenStore(tokens, "heldout")
    sizes = dict(FAMILIES[family].tiny) | ({"direction": "backward"} if family == "ulmfit" else {})
    training = lm_settings(batch_size=4, window=8)
    block = PretrainSettings(tokenizer=kind, model=sizes, training=training)
    positions = measured_positions(tokens, family, block, training)
    assert positions is not None
    stream = store.span(0, store.tokens)
    torch.manual_seed(0)
    model = build_model(family, vocabulary=store.vocab_size, settings=sizes)
    model.bind(load_tokenizer(inputs / "tokenizer" / f"general-{kind}"))
    sampler = heldout_sampler(family, store, config=model.config, pieces=(), batch_size=4, window=8, workers=1)
    assert sampler is not None
    seen: list[torch.Tensor] = []
    losses = model.losses

    def watched(batch, carry=()):
        seen.append(batch["targets"].ravel())
        return losses(batch, carry)

    monkeypatch.setattr(model, "losses", watched)
    measure(model, sampler, store, family=family, pieces=32_768, precision="float32", world=World())
    np.testing.assert_array_equal(stream[positions], torch.cat(seen).numpy())
