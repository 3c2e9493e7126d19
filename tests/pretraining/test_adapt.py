"""The stage adapt: initial weights, re-mapped vocabulary, and the measurement of forgetting."""

import pytest
import torch

from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError
from components.models import FAMILIES
from components.models.encoder import build_model, load_encoder
from components.tokenization import load_tokenizer, overlap
from components.tokenization.store import TokenStore
from components.training.pretraining.adapt import adapt
from components.training.pretraining.language_model import parameter_groups
from components.training.pretraining.samplers import sampler_for
from tests.training.helpers import (
    adapt_job,
    lm_settings,
    metrics_of,
    pretrained_by,
    run_interrupted,
    same_bits,
    text_of,
    weights,
)

#: Settings with a rate of its own for each layer and step.
RATES = {"discriminative": 2.6, "schedule": "slanted_triangular"}


@pytest.mark.parametrize(("family", "rates"), [*((family, {}) for family in sorted(FAMILIES)), ("bert", RATES)])
def test_interrupted_runs_end_bit_identical(inputs, pretrained, tmp_path, family, rates):
    training = lm_settings(**rates)
    unbroken = adapt(adapt_job(inputs, family, pretrained[family], tmp_path / "unbroken", training=training))
    job = adapt_job(inputs, family, pretrained[family], tmp_path / "interrupted", training=training)
    run_interrupted(adapt, job)
    assert same_bits(weights(unbroken), weights(job.output))
    encoder = load_encoder(job.output, verify=True)
    assert encoder.trained
    assert encoder.tokenizer.fingerprint() == load_tokenizer(job.tokenizer).fingerprint()
    assert read_manifest(job.output).facts["parent"] == read_manifest(pretrained[family]).digest


def test_an_interrupted_run_waits_for_its_checkpoint(inputs, pretrained, tmp_path):
    job = adapt_job(inputs, "word2vec", pretrained["word2vec"], tmp_path, training=lm_settings())
    run_interrupted(adapt, job, writing=0.3)


def test_shared_pieces_keep_their_embeddings(inputs, pretrained, tmp_path):
    job = adapt_job(inputs, "ulmfit", pretrained["ulmfit"], tmp_path, training=lm_settings(rate=1e-30))
    before = load_encoder(job.pretrained)
    rows = torch.from_numpy(overlap(before.tokenizer.pieces, load_tokenizer(job.tokenizer).pieces))
    old, new = weights(job.pretrained)["embedding"], weights(adapt(job))["embedding"]
    shared = rows >= 0
    assert 5 < int(shared.sum()) < len(rows)
    torch.testing.assert_close(new[shared], old[rows[shared]])
    torch.testing.assert_close(new[~shared], old.mean(0).expand(int((~shared).sum()), -1))
    # The output bias has the domain's frequencies, which its tokenizer stores.
    frequencies = torch.from_numpy(load_tokenizer(job.tokenizer).log_frequencies())
    torch.testing.assert_close(weights(job.output)["bias"], frequencies)


def test_epochs_override_the_budget(inputs, pretrained, tmp_path):
    job = adapt_job(inputs, "ulmfit", pretrained["ulmfit"], tmp_path, epochs=0.5)
    held = TokenStore(job.tokens, "train").tokens
    metrics = metrics_of(adapt(job))
    step = job.training.batch_size * job.training.window
    assert metrics["steps"] == round(0.5 * held / step) and metrics["tokens"] == pytest.approx(0.5 * held, abs=step)
    # More seconds than the passes take on any machine. Passes bound a budget, not epochs.
    bounded = lm_settings(tokens=None, seconds=1e6, passes=0.1)
    for epochs, passes in ((None, 0.1), (0.2, 0.2)):
        output = tmp_path / f"bounded-{epochs}"
        job = adapt_job(inputs, "ulmfit", pretrained["ulmfit"], output, epochs=epochs, training=bounded)
        assert metrics_of(adapt(job))["steps"] == round(passes * held / step)


def test_perplexity_before_and_after(inputs, tmp_path):
    longer = lm_settings(tokens=4 * 8 * 60, rate=0.05)
    pretrained = pretrained_by(inputs, "ulmfit", tmp_path, training=longer)
    before = metrics_of(pretrained)
    job = adapt_job(inputs, "ulmfit", pretrained, tmp_path, training=longer)
    metrics = metrics_of(adapt(job))
    assert metrics["perplexity_per_word"] < metrics["before_perplexity_per_word"]
    # General text: the perplexity before adaptation equals that after pretraining; forgetting increases it.
    assert metrics["general_before_perplexity_per_word"] == pytest.approx(before["perplexity_per_word"], rel=1e-4)
    assert metrics["general_after_perplexity_per_word"] > 1.5 * metrics["general_before_perplexity_per_word"]


@pytest.mark.parametrize(
    ("family", "rate"), [("cove", 0.02), pytest.param("transformer", 0.005, marks=pytest.mark.slow)]
)
def test_a_translation_model_is_adapted_to_the_domains_pairs(inputs, family, rate, tmp_path):
    longer = lm_settings(tokens=4 * 8 * 60, rate=rate)
    pretrained = pretrained_by(inputs, family, tmp_path, training=longer)
    before = metrics_of(pretrained)
    # A target has seven words and END; the perplexity is that of the target's pieces, not the source's.
    held = metrics_of(inputs / "tokens" / "general-parallel")["heldout"]
    assert held["targets"] == held["documents"] * 8 < held["tokens"]
    assert before["perplexity_per_word"] == pytest.approx(before["perplexity"] ** (8 / 7))
    encoder, tokens = load_encoder(pretrained), inputs / "tokens"
    options = {"batch_size": 4, "window": 8, "seed": 0, "config": encoder.model.config}
    heldout = sampler_for(family, TokenStore(tokens / "general-parallel", "heldout"), **options)
    assert heldout.scores(encoder.model, encoder.tokenizer) == {"bleu": before["bleu"]}
    assert 0 <= before["before_bleu"] < 3
    job = adapt_job(inputs, family, pretrained, tmp_path, training=longer)
    assert job.general_corpus.name == "general-parallel"
    metrics = metrics_of(adapt(job))
    assert metrics["perplexity"] < metrics["before_perplexity"]
    assert metrics["general_before_perplexity"] == pytest.approx(before["perplexity"], rel=1e-4)
    # The general pairs are encoded with the domain's vocabulary, which contains few of their words.
    assert metrics["general_after_perplexity"] != pytest.approx(metrics["general_before_perplexity"], rel=1e-2)


def test_unsuitable_encoders(inputs, pretrained, tmp_path):
    with pytest.raises(ArtifactError, match="is an encoder of 'bert'; run the pretrain stage of ulmfit first"):
        adapt(adapt_job(inputs, "ulmfit", pretrained["bert"], tmp_path))
    with pytest.raises(ArtifactError, match=r"nowhere: not a complete output \(no manifest.json\)"):
        adapt(adapt_job(inputs, "ulmfit", tmp_path / "nowhere", tmp_path))


def test_a_published_model_is_adapted_to_the_domain(inputs, pretrained, tmp_path):
    """The model's vocabulary is that of neither corpus; forgetting is measured with the model's own pieces."""
    from components.interchange.importing import import_encoder
    from components.registry.exports.champion import export_encoder

    domain = pretrained_by(inputs, "bert", tmp_path / "domain", **text_of(inputs, "domain", "wordpiece"))
    export_encoder(domain, output=tmp_path / "published")
    import_encoder(tmp_path / "published", output=tmp_path / "imported")
    imported = load_encoder(tmp_path / "imported")
    assert imported.tokenizer.frequencies is None
    job = adapt_job(inputs, "bert", tmp_path / "imported", tmp_path / "adapted")
    metrics = metrics_of(adapt(job))
    assert {"general_before_perplexity_per_word", "general_after_perplexity_per_word"} <= metrics.keys()
    assert load_encoder(job.output).trained
    # Text encoded with the imported vocabulary, which has no counts: no re-mapping, and the output bias is unchanged.
    kept = adapt_job(inputs, "bert", tmp_path / "imported", tmp_path / "kept", training=lm_settings(rate=1e-30))
    torch.testing.assert_close(weights(adapt(kept)), weights(tmp_path / "imported"))


# Adaptation with discriminative and slanted triangular learning rates.


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_parameter_has_its_discriminative_rate(family):
    model = build_model(family, vocabulary=40, settings=FAMILIES[family].tiny)
    scales = {
        id(parameter): group.scale
        for group in parameter_groups(model, lm_settings(discriminative=2.6))
        for parameter in group.parameters
    }
    assert scales.keys() == {id(parameter) for parameter in model.parameters()}
    embeddings, *layers = model.layer_groups()
    assert {scales[id(parameter)] for parameter in embeddings} <= {1.0}
    for depth, layer in enumerate(reversed(layers)):
        assert [scales[id(parameter)] for parameter in layer] == pytest.approx([2.6**-depth] * len(layer))
