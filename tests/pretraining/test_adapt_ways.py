"""Ways to adapt: replay of general text, discriminative and slanted triangular learning rates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.errors import DataError
from components.models import FAMILIES
from components.models.encoder import build_model
from components.pretraining.adapt import adapt
from components.pretraining.language_model import parameter_groups
from components.pretraining.pretrain import pretrain
from components.pretraining.replay import GENERAL, sample, write_mixture
from components.tokenization import load_tokenizer
from components.tokenization.store import TokenStore
from tests.training.helpers import adapt_job, lm_settings, pretrain_job, run_with_kills, same_bits, weights


def mixture(inputs: Path, into: Path, replay: float) -> Path:
    return write_mixture(
        inputs / "tokens" / "domain-wordpiece",
        general=inputs / "corpus" / "general",
        general_tokens=inputs / "tokens" / "general-wordpiece",
        tokenizer=inputs / "tokenizer" / "domain-wordpiece",
        replay=replay,
        seed=3,
        into=into,
    )


def test_a_mixture_has_general_documents_in_the_domains_vocabulary(inputs: Path, tmp_path: Path) -> None:
    domain, mixed = TokenStore(inputs / "tokens" / "domain-wordpiece"), TokenStore(mixture(inputs, tmp_path / "m", 0.2))
    added = [mixed.document(number) for number in mixed.shards[GENERAL]]
    assert mixed.words - domain.words == pytest.approx(0.2 * domain.words, abs=25)
    assert len({document.tobytes() for document in added}) == len(added)
    pieces = load_tokenizer(inputs / "tokenizer" / "domain-wordpiece").pieces
    # The general text, in pieces of the domain's vocabulary.
    spelled = "".join(pieces[piece].removeprefix("##") for piece in added[0])
    assert "theriver" in spelled or "bridge" in spelled or "salt" in spelled or "boats" in spelled
    held = [TokenStore(folder, "heldout").tokens for folder in (domain.directory, mixed.directory)]
    assert held[0] == held[1]


def test_equal_mixtures_have_equal_digests(inputs: Path, tmp_path: Path) -> None:
    first, second = (mixture(inputs, tmp_path / name, 0.5) / "manifest.json" for name in ("a", "b"))
    assert first.read_text() == second.read_text()


def test_little_general_text_is_repeated(inputs: Path, tmp_path: Path) -> None:
    general = TokenStore(inputs / "tokens" / "general-wordpiece")
    times = sample(general, words=round(2.5 * general.words), seed=0)
    assert set(times.values()) == {2, 3} and len(times) == general.documents
    words = sum(int(general.words_per_document[number]) * count for number, count in times.items())
    assert words == pytest.approx(2.5 * general.words, abs=25)
    domain, mixed = TokenStore(inputs / "tokens" / "domain-wordpiece"), TokenStore(mixture(inputs, tmp_path / "m", 2.0))
    assert mixed.words == pytest.approx(3 * domain.words, abs=25)
    assert not sample(general, words=0, seed=0)


def test_general_text_without_words_cannot_be_repeated() -> None:
    class Empty:
        words, directory = 0, Path("general")

    with pytest.raises(DataError, match=r"general: has no words that could be repeated; set adapt.<name>.replay to 0"):
        sample(Empty(), words=1, seed=0)  # type: ignore[arg-type]


def test_replay_lowers_forgetting(inputs: Path, tmp_path: Path) -> None:
    longer = lm_settings(tokens=4 * 8 * 150, rate=0.05)
    pretrained = pretrain(pretrain_job(inputs, "ulmfit", tmp_path, training=longer))
    general = []
    for replay in (0.0, 1.0):
        job = adapt_job(inputs, "ulmfit", pretrained, tmp_path / str(replay), training=longer, replay=replay)
        metrics = json.loads((adapt(job) / "metrics.json").read_text())
        general.append(metrics["general_after_perplexity_per_word"])
        assert metrics["perplexity_per_word"] < metrics["before_perplexity_per_word"]
        assert [path.name for path in job.output.parent.iterdir() if "text" in path.name] == []
    assert general[1] < 0.5 * general[0]


def test_a_killed_run_with_replay_ends_bit_identical(inputs: Path, tmp_path: Path) -> None:
    pretrained = pretrain(pretrain_job(inputs, "bert", tmp_path))
    settings = lm_settings(tokens=4 * 8 * 15, discriminative=2.6, schedule="slanted_triangular")
    whole = adapt_job(inputs, "bert", pretrained, tmp_path / "whole", training=settings, replay=0.5)
    adapt(whole)
    killed = adapt_job(inputs, "bert", pretrained, tmp_path / "killed", training=settings, replay=0.5)
    run_with_kills(adapt, killed, checkpoints=tmp_path / "killed" / "checkpoints", seed=4, kills=2)
    assert same_bits(weights(killed.output), weights(whole.output))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_parameter_has_its_discriminative_rate(family: str) -> None:
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


def test_equal_rates_are_the_default() -> None:
    model = build_model("ulmfit", vocabulary=40, settings=FAMILIES["ulmfit"].tiny)
    assert {group.scale for group in parameter_groups(model, lm_settings())} == {1.0}
