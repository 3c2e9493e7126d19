"""The stages pretrain and scratch: their outputs, and that a killed run ends like an uninterrupted one."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from components.cluster.distributed import Worker
from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError, ConfigError, TrainingError
from components.core.measurements import FILE, Lines, points_of
from components.models import FAMILIES
from components.models.encoder import load_encoder
from components.settings.cluster import ClusterSettings
from components.settings.training import LanguageModelTraining
from components.tokenization import load_tokenizer
from components.tokenization.store import TokenStore
from components.training.checkpoint import CheckpointStore
from components.training.pretraining import language_model, launch
from components.training.pretraining.language_model import (
    TrainingHistory,
    before_training,
    initial_model,
    work,
)
from components.training.pretraining.pretrain import pretrain, published_training, scratch
from components.training.pretraining.samplers import training_sampler
from tests.training.helpers import (
    CURVE,
    curve_of,
    drawn_encoder,
    lm_settings,
    metrics_of,
    pretrain_job,
    pretrained_by,
    run_of,
    run_with_kills,
    same_bits,
    scratch_job,
    text_of,
    weights,
)

LONG = lm_settings(tokens=4 * 8 * 20)


#: A recurrent, an attention and a vectors model, which a kill ends, with clusters of the softmax and sparse gradients;
#: test_adapt interrupts every family.
KILLED: list[tuple[str, dict[str, Any]]] = [
    ("ulmfit", {"static": 5}),
    ("transformer-xl", {"cutoffs": [20, 45], "divide": 2}),
    ("fasttext", {"buckets": 5000, "sparse": True}),
]


@pytest.mark.parametrize(("family", "sizes"), KILLED)
def test_killed_runs_end_bit_identical(inputs, tmp_path, family, sizes):
    changes = {"model": {**FAMILIES[family].tiny, **sizes}, "training": LONG}
    unbroken = pretrained_by(inputs, family, tmp_path / "unbroken", **changes)
    job = pretrain_job(inputs, family, tmp_path / "killed", **changes)
    killed = run_with_kills(pretrain, job, checkpoints=tmp_path / "killed" / "checkpoints", seed=len(family))
    assert killed >= 1
    assert same_bits(weights(unbroken), weights(job.output))
    # The metrics are equal, too, except for times.
    timed = {"seconds", "tokens_per_second"}
    first, second = (metrics_of(output) for output in (unbroken, job.output))
    assert {key: first[key] for key in first.keys() - timed} == {key: second[key] for key in second.keys() - timed}
    assert not any((tmp_path / "killed" / "checkpoints").iterdir())


def test_a_preset_sets_the_training_keys_that_the_settings_do_not():
    given = LanguageModelTraining(tokens=10, rate=0.1, batch_size=1, clip=0.5)
    gpt3 = published_training(given, family="gpt", preset="gpt3")
    assert (gpt3.betas, gpt3.weight_decay, gpt3.clip) == ((0.9, 0.95), 0.1, 0.5)
    chosen = LanguageModelTraining(tokens=10, rate=0.1, batch_size=1, betas=(0.8, 0.9))
    assert published_training(chosen, family="gpt", preset="gpt2").betas == (0.8, 0.9)
    assert published_training(given, family="gpt", preset=None) == given
    for family in FAMILIES.values():
        assert family.training.keys() <= family.presets.keys()
        for preset in family.training:
            LanguageModelTraining.model_validate({**given.model_dump(), **family.training[preset]})


def test_the_encoder_and_its_metrics(inputs, tmp_path):
    job = pretrain_job(inputs, "ulmfit", tmp_path, training=lm_settings(tokens=4 * 8 * 40, rate=0.05, **CURVE))
    assert pretrain(job) == job.output
    encoder = load_encoder(job.output, verify=True)
    assert encoder.trained
    assert encoder.tokenizer.fingerprint() == load_tokenizer(job.tokenizer).fingerprint()
    facts = read_manifest(job.output, kind="encoder").facts
    assert facts["tokens"] == read_manifest(job.tokens).digest
    assert facts["parent"] is None
    metrics = metrics_of(job.output)
    assert metrics["parameters"] == sum(tensor.numel() for tensor in weights(job.output).values())
    assert metrics["steps"] == 40
    assert metrics["tokens"] == 4 * 8 * 40
    assert (metrics["workers"], metrics["precision"]) == (1, "float32")
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))
    assert metrics["loss"] < metrics["before_loss"]
    # The loss per word and per character is the loss per piece times pieces / words and pieces / characters.
    counts = metrics_of(job.tokens)["heldout"]
    assert metrics["perplexity_per_word"] == pytest.approx(
        math.exp(metrics["loss"] * counts["tokens"] / counts["words"])
    )
    assert metrics["bits_per_character"] == pytest.approx(
        metrics["loss"] * counts["tokens"] / counts["chars"] / math.log(2)
    )
    rows = curve_of(job.output)
    assert len(rows) == 20
    assert int(rows[-1]["step"]) == 40
    assert float(rows[-1]["heldout"]) < float(rows[0]["heldout"])


def test_measurements_for_monitoring(inputs, tmp_path, monkeypatch):
    training = lm_settings(tokens=4 * 8 * 20, **CURVE)
    without = pretrained_by(inputs, "ulmfit", tmp_path / "without", training=training)
    file = tmp_path / "measurements.jsonl"
    monkeypatch.setenv(FILE, json.dumps({"path": str(file)}))
    output = pretrained_by(inputs, "ulmfit", tmp_path, training=training)
    assert same_bits(weights(without), weights(output)), "monitoring changes no result"

    points = [point for line in Lines(file).read() for point in points_of(line)]
    curves: dict[str, dict[int, float]] = {}
    for point in points:
        curves.setdefault(point.key, {})[point.step] = point.value
    assert curves.keys() == {"loss", "rate", "gradient_norm", "tokens_per_second", "heldout_loss"}
    assert list(curves["loss"]) == list(range(1, 21))
    rows = curve_of(output)
    assert curves["heldout_loss"] == {int(row["step"]): float(row["heldout"]) for row in rows}
    assert {step: curves["rate"][step] for step in curves["heldout_loss"]} == {
        int(row["step"]): float(row["rate"]) for row in rows
    }


def test_another_tokenizer_config_or_corpus_has_other_checkpoints(inputs, tmp_path):
    run = run_of(pretrain_job(inputs, "ulmfit", tmp_path))
    domain = text_of(inputs, "domain", "wordpiece")
    changed = [
        {"tokens": domain["tokens"]},
        {"tokenizer": domain["tokenizer"]},
        {"model": {**FAMILIES["ulmfit"].tiny, "hidden": 10}},
        {"seed": 4},
        {"training": LONG},
    ]
    assert len({launch._key(each) for each in (run, *(run.model_copy(update=other) for other in changed))}) == 6
    assert launch._key(run) == launch._key(run.model_copy(update={"checkpoint_seconds": 5}))


#: Family, changes of the job, and the error.
INVALID: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    (
        "bert",
        {"training": lm_settings(window=25)},
        ConfigError,
        "training.window 25 is longer than the model's 24 positions; lower it, or pretrain a model with more",
    ),
    ("ulmfit", {"tokenizer": "domain-wordpiece"}, ArtifactError, "encoded with another tokenizer than .*domain"),
    (
        "ulmfit",
        {"cluster": ClusterSettings(launcher="local", workers=2, storage="nowhere")},
        ConfigError,
        "cluster.workers: the local launcher runs 1 worker, not 2; set cluster.launc",
    ),
    (
        "bert",
        {"training": lm_settings(rate=1e38, optimizer="sgd", clip=0, schedule="constant")},
        TrainingError,
        r"became (nan|inf) at step \d+ .*; lower training.rate",
    ),
]


@pytest.mark.parametrize(("family", "changes", "error", "message"), INVALID)
def test_runs_that_stop_with_an_error(inputs, tmp_path, family, changes, error, message):
    if "tokenizer" in changes:
        changes = {"tokenizer": inputs / "tokenizer" / changes["tokenizer"]}
    job = pretrain_job(inputs, family, tmp_path, **changes)
    with pytest.raises(error, match=message):
        pretrain(job)
    assert not job.output.exists()


@pytest.mark.parametrize("family", ["bert", "gpt", "transformer"])
def test_every_position_of_a_model_is_trained(inputs, tmp_path, family):
    job = pretrain_job(
        inputs, family, tmp_path / "pretrained", model={**FAMILIES[family].tiny, "positions": 512}, training=LONG
    )
    window = job.training.window
    encoder = load_encoder(pretrain(job))
    assert encoder.model.max_tokens == job.training.longest(512) > window, "long windows, and no further positions"
    random = load_encoder(scratch(scratch_job(job, tmp_path / "scratch", pretraining=job.training))).model
    assert random.max_tokens == encoder.model.max_tokens
    if not hasattr(encoder.model, "position"):
        # Sinusoids are not trained.
        return
    begun = initial_model(run_of(job, model=encoder.model.config.model_dump(exclude={"vocabulary"})))
    moved = (encoder.model.position - begun.position).abs().sum(1)
    assert bool((moved > 1e-4).all()), "weight decay alone moves a position less"


def test_long_windows_have_as_many_tokens_in_every_tenth_step(inputs):
    job = pretrain_job(inputs, "roberta", Path("unused"))
    settings = job.training.model_copy(update={"batch_size": 8, "window": 6})
    model = FAMILIES["roberta"].build(FAMILIES["roberta"].config(**FAMILIES["roberta"].tiny, vocabulary=100))
    sampler = training_sampler("roberta", TokenStore(job.tokens), model=model, settings=settings, pieces=[], seed=0)
    shapes = [tuple(sampler.batch(step)["tokens"].shape) for step in range(20)]
    assert shapes == [*[(8, 6)] * 9, (2, 24)] * 2
    assert sampler.tokens_before(20) == 20 * 48
    assert [settings.longest(positions) for positions in (None, 6, 11, 12, 23, 24, 512)] == [6, 6, 6, 12, 12, 24, 24]
    explicit = LanguageModelTraining(tokens=10, rate=0.1, batch_size=6, window=4, long_window=12)
    assert explicit.longest(512) == 12
    for wrong in ({"long_window": 10}, {"long_window": 16}):
        with pytest.raises(ValidationError, match=r"long_window 1\d must be a multiple of window 4"):
            LanguageModelTraining.model_validate(explicit.model_dump() | wrong)


@pytest.mark.parametrize("family", ["bert", "elmo"])
def test_scratch_is_the_same_model_untrained(inputs, tmp_path, family):
    job = scratch_job(pretrain_job(inputs, family, tmp_path), tmp_path / "scratch")
    encoder = load_encoder(scratch(job), verify=True)
    assert not encoder.trained
    assert encoder.family == family
    assert encoder.model.config.vocabulary == load_tokenizer(job.tokenizer).vocab_size
    assert encoder.model.config.model_dump(include=set(job.model)) == job.model
    other = scratch(job.model_copy(update={"output": tmp_path / "other", "seed": 1}))
    assert not same_bits(weights(job.output), weights(other))


def test_models_without_language_modelling_have_the_vectors_of_the_text(inputs, tmp_path):
    pretraining = pretrain_job(inputs, "ulmfit", tmp_path, model={**FAMILIES["ulmfit"].tiny, "static": 4})
    training = lm_settings().model_copy(update={"vectors": True})
    job = scratch_job(pretraining, tmp_path / "scratch", tokens=pretraining.tokens, training=training)
    random = load_encoder(scratch(job))
    begun = load_encoder(scratch(job.model_copy(update={"start": "vectors", "output": tmp_path / "vectors"})))
    run = run_of(job)
    first = initial_model(run)
    before_training(run, first)
    assert begun.trained and not random.trained
    assert same_bits(begun.model.state_dict(), first.state_dict()), "the model of pretraining before its first step"
    static, expected = random.model.static_vectors(), first.static_vectors()
    assert static is not None and expected is not None and expected.abs().sum() > 0
    assert torch.equal(static, expected), "the same channel"
    assert not torch.equal(random.model.piece_embedding(), first.piece_embedding()), "all other weights are random"
    drawn = drawn_encoder(job.output)
    assert torch.equal(drawn.static_vectors(), expected), "of every seed of fine-tuning"
    assert not torch.equal(drawn.piece_embedding(), random.model.piece_embedding())


def test_a_budget_of_seconds_becomes_steps_once(inputs, tmp_path, monkeypatch):
    job = pretrain_job(inputs, "ulmfit", tmp_path, training=lm_settings(tokens=None, seconds=1000.0))
    run = run_of(job, storage=str(tmp_path / "checkpoints"), key="run", checkpoint_seconds=1e-9)
    published: list[float] = []
    monkeypatch.setattr(language_model, "_steps_in_time", lambda *_: 5)
    real = language_model.train

    def breaks_off(*arguments, **named):
        for report in real(*arguments, **named):
            yield report
            if report.step == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(language_model, "train", breaks_off)
    with pytest.raises(KeyboardInterrupt):
        work(run, Worker())
    # The speed after resuming has no effect, because the number of steps is that of the first attempt.
    monkeypatch.setattr(language_model, "_steps_in_time", lambda *_: 99)
    monkeypatch.setattr(language_model, "train", real)
    work(run, Worker(publish=lambda numbers: published.append(numbers["tokens"])))
    stored = CheckpointStore(run.storage, key=run.key).latest()
    assert stored is not None and stored.step == 5
    assert stored.numbers["progressed"]["steps"] == 5
    assert len(published) < 5


@pytest.mark.parametrize(
    ("budget", "passes"),
    [({"tokens": 10**9}, 1.1), ({"tokens": None, "seconds": 1e6}, 0.1)],
)
def test_passes_bound_the_budget(inputs, tmp_path, budget, passes):
    training = lm_settings(**budget, passes=passes)
    job = pretrain_job(inputs, "word2vec", tmp_path, training=training)
    steps = metrics_of(pretrain(job))["steps"]
    assert steps == round(passes * TokenStore(job.tokens, "train").tokens / (4 * 8))
    # A smaller budget is not bounded.
    small = training.model_copy(update={"tokens": 4 * 8, "seconds": None})
    assert metrics_of(pretrained_by(inputs, "word2vec", tmp_path / "small", training=small))["steps"] == 1


def test_overfitting_is_reported(inputs, tmp_path, capsys):
    curve = [{"step": step, "tokens": 1000 * step, "heldout": loss} for step, loss in enumerate((3.0, 2.0, 2.5), 1)]
    assert launch.overfitted(TrainingHistory(curve=[*curve, {"step": 4, "tokens": 4000}])) == (
        "the held-out loss rose from 2.00 after 2,000 tokens to 2.50 after 3,000; make fewer passes over the text "
        "(training.passes) or lower training.rate"
    )
    for losses in ([3.0, 2.5, 2.0], [3.0, 2.0, 2.05], []):
        curve = [{"step": step, "tokens": 100 * step, "heldout": loss} for step, loss in enumerate(losses, 1)]
        assert launch.overfitted(TrainingHistory(curve=curve)) == "", "the held-out loss does not rise"
    # A rate at which training diverges.
    settings = lm_settings(tokens=4 * 8 * 60, rate=3.0, clip=100.0, schedule="constant", **CURVE)
    pretrained_by(inputs, "word2vec", tmp_path, training=settings)
    assert "pretrain word2vec: warning: the held-out loss rose from" in capsys.readouterr().out


@pytest.mark.parametrize("budget", [{"tokens": None}, {"tokens": 10, "seconds": 1.0}])
def test_exactly_one_budget_is_required(budget):
    with pytest.raises(ValidationError, match="needs a budget: either tokens or seconds"):
        lm_settings(**budget)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A BERT as Hugging Face's library saves it, over words of the inputs' text."""
    from transformers import BertConfig, BertForPreTraining

    folder = tmp_path / "published"
    folder.mkdir()
    words = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    (folder / "vocab.txt").write_text("\n".join([*words, *("##" + letter for letter in words[6:])]) + "\n")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    BertForPreTraining(BertConfig(vocab_size=len(words) + 26, **sizes)).save_pretrained(folder)
    return folder


def test_a_published_model_replaces_pretraining(inputs, tmp_path, published):
    from components.interchange.importing import source_digest

    digest = source_digest(published)
    job = pretrain_job(inputs, "bert", tmp_path, source=published, digest=digest, model={})
    assert pretrain(job) == job.output
    encoder = load_encoder(job.output, verify=True)
    assert encoder.trained and encoder.family == "bert"
    facts = read_manifest(job.output, kind="encoder").facts
    assert (facts["source_digest"], facts["parent"]) == (digest, None)
    written = (job.output / "curve.csv").read_text()
    assert written.splitlines() == ["step,tokens,seconds,loss,heldout,rate,gradient_norm"]
    # The report reads the same files as of a trained encoder.
    metrics = metrics_of(job.output)
    assert metrics["parameters"] > 1000
    assert [metrics[key] for key in ("tokens", "seconds", "tokens_per_second", "precision")] == [0, 0, 0, "float32"]
    # From scratch: the same sizes with the domain's vocabulary.
    drawn = load_encoder(scratch(scratch_job(job, tmp_path / "scratch", source=published, digest=digest)))
    same = encoder.model.config.model_copy(update={"vocabulary": drawn.tokenizer.vocab_size})
    assert (drawn.trained, drawn.model.config) == (False, same)


def test_an_output_that_was_not_published_starts_at_the_frequencies(inputs, tmp_path, published):
    from transformers import BertModel

    from components.interchange.importing import read_published

    encoder_alone = tmp_path / "alone"
    BertModel.from_pretrained(published).save_pretrained(encoder_alone)
    (encoder_alone / "vocab.txt").write_bytes((published / "vocab.txt").read_bytes())
    for source, learned in ((published, True), (encoder_alone, False)):
        counted = read_published(source).tokenizer
        counted.frequencies = np.arange(counted.vocab_size)
        folder = tmp_path / f"tokenizer-{source.name}"
        counted.save(folder)
        out = tmp_path / f"of-{source.name}"
        imported = load_encoder(pretrained_by(inputs, "bert", out, source=source, model={}, tokenizer=folder))
        bias = dict(imported.model.named_parameters())["bias"]
        starts = torch.equal(bias, torch.from_numpy(counted.log_frequencies()).float())
        assert starts is not learned


def test_a_published_model_that_differs_from_its_settings(inputs, tmp_path, published):
    for family, changes, message in (
        ("ulmfit", {}, "its model_type 'bert' belongs to the family 'bert', not 'ulmfit'"),
        ("bert", {"model": {"width": 32, "dropout": 0.2}}, r"published: the source determines width; remove it \(.*m"),
        ("bert", text_of(inputs, "general", "char"), "its tokenizer is of kind 'wordpiece'; .* instead of 'char'"),
    ):
        with pytest.raises((ArtifactError, ConfigError), match=message):
            pretrained_by(inputs, family, tmp_path, **{"source": published, "model": {}} | changes)
    assert not (tmp_path / "pretrained").exists()


def test_perplexity_is_measured_on_as_much_held_out_text_as_the_settings_say(inputs, tmp_path):
    """With little text, in fewer rows of the curve."""
    numbers = {}
    for heldout in (64, 32_768):
        training = lm_settings(tokens=4 * 8 * 20, rate=0.01, heldout=heldout)
        output = pretrained_by(inputs, "ulmfit", tmp_path / str(heldout), training=training)
        measured = [row["heldout"] != "" for row in curve_of(output)]
        numbers[heldout] = metrics_of(output)["pieces"], len(measured), sum(measured)
    assert numbers[64] == (64, 20, 0), "the curve would take more text than both measurements"
    assert numbers[32_768][0] > 64 and numbers[32_768][1:] == (20, 20)
