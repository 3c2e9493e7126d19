"""The stage ngrams: the perplexity of n-grams on the held-out pieces on which language models are measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from components.artifacts import read_manifest
from components.models import FAMILIES
from components.models.encoder import build_model
from components.ngrams.model import load
from components.pretraining.ngrams import MeasuredModel, NgramsJob, measured_positions, ngrams
from components.pretraining.perplexity import heldout_sampler, measure
from components.settings.ngrams import NgramSettings
from components.tokenization import load_tokenizer
from components.tokenization.store import TokenStore
from components.training.distributed import World
from tests.training.helpers import tokenizer_of

CAUSAL = sorted(name for name in FAMILIES if FAMILIES[name].objective == "causal")


def entry(family: str, **model: object) -> MeasuredModel:
    return MeasuredModel(family=family, model=dict(FAMILIES[family].tiny) | model, batch_size=4, window=8)


def job(inputs: Path, output: Path, **changes: object) -> NgramsJob:
    models = {"ulmfit": entry("ulmfit"), "bert": entry("bert")}
    settings = NgramSettings(order=3, **changes)
    return NgramsJob(tokens=inputs / "tokens" / "general-wordpiece", output=output, settings=settings, models=models)


def test_the_metrics(inputs: Path, tmp_path: Path) -> None:
    output = ngrams(job(inputs, tmp_path / "ngrams", keep=True))
    metrics = json.loads((output / "metrics.json").read_text())
    heldout = TokenStore(inputs / "tokens" / "general-wordpiece", "heldout")
    nats = -load(output).log_probs(heldout)
    assert metrics["perplexity_per_word"] == pytest.approx(np.exp(nats.sum() / heldout.words))
    assert metrics["bits_per_character"] == pytest.approx(nats.sum() / heldout.chars / np.log(2))
    assert metrics["vocabulary"] == heldout.vocab_size - 3 and metrics["order"] == 3 and metrics["unknown_rate"] == 0
    assert metrics["models"].keys() == {"ulmfit"}, "a masked model has no comparable perplexity"
    assert metrics["models"]["ulmfit"]["pieces"] > 100
    assert read_manifest(output, kind="ngrams").facts["tokenizer"] == heldout.tokenizer_fingerprint
    # The held-out text is like the train text: better than a uniform choice.
    assert metrics["perplexity"] < metrics["vocabulary"] / 2


def test_the_model_is_kept_only_on_request(inputs: Path, tmp_path: Path) -> None:
    output = ngrams(job(inputs, tmp_path / "ngrams"))
    assert {path.name for path in output.iterdir()} == {"metrics.json", "manifest.json"}


@pytest.mark.parametrize("family", CAUSAL)
def test_the_same_pieces_as_the_language_model(inputs: Path, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = tokenizer_of(family)
    store = TokenStore(inputs / "tokens" / f"general-{kind}", "heldout")
    measured = entry(family, **({"direction": "backward"} if family == "ulmfit" else {}))
    positions = measured_positions(store, measured)
    assert positions is not None
    stream = store.span(0, store.tokens)
    torch.manual_seed(0)
    model = build_model(family, vocabulary=store.vocab_size, settings=measured.model)
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
