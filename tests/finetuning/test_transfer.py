"""Settings of transfer: the effect of each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from components.core.errors import ConfigError
from components.learners.finetuning.stage import finetune
from components.learners.task_models.classifier import load_classifier
from components.learners.task_models.kinds.texts import CLASSIFICATION
from components.learners.task_models.model import TaskModel
from components.learners.task_models.sampler import ExampleSampler
from components.models.encoder import load_encoder
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.tokenization.special import MASK
from components.training.loop import slanted_triangular

pytestmark = pytest.mark.usefixtures("in_process")


def batches(encoder: Path, settings: FinetuneSettings, **changes: Any) -> tuple[TaskModel, ExampleSampler]:
    loaded, settings = load_encoder(encoder), settings.model_copy(update=changes)
    torch.manual_seed(0)
    model = TaskModel(loaded.model, task=CLASSIFICATION, settings=settings, labels=["a", "b", "c"]).eval()
    texts = [(f"the {word} is red and very old {number}",) for number, word in enumerate(["apple", "iron", "cat"] * 3)]
    encoded = CLASSIFICATION.encode(texts, loaded.tokenizer, loaded.model, settings)
    return model, ExampleSampler(encoded, [np.asarray([float(row % 3)]) for row in range(9)], batch_size=4, seed=3)


@pytest.mark.parametrize("family", ["ulmfit", "gpt"])
def test_the_loss_is_that_of_the_task_and_the_weighted_mean_of_the_pieces(family, make_encoder, settings):
    encoder = make_encoder(family)
    plain, _ = batches(encoder, settings)
    model, sampler = batches(encoder, settings, lm_weight=0.25)
    batch = sampler.batch(1)
    total, count = model.encoder.text_loss(batch, model.encoder.hidden_states(batch["tokens"], batch["lengths"]))
    torch.testing.assert_close(model.loss(batch), plain.loss(batch) + 0.25 * total / count)
    # Then all parameters are trained, including the language model's output layer.
    trained = [*model.own_parameters(), *(each for group in model.encoder.layer_groups() for each in group)]
    assert {*map(id, model.parameters())} <= {*map(id, trained)}
    own = [*plain.features.parameters(), *plain.head.parameters()]
    assert {*map(id, plain.own_parameters())} == {*map(id, own)}


@pytest.mark.parametrize("family", ["word2vec", "bert"])
def test_families_without_objective_have_no_auxiliary_loss(family, make_job):
    with pytest.raises(ConfigError, match="set lm_weight to 0"):
        finetune(make_job(family, "classification", lm_weight=0.5))


def test_chain_thaw_follows_the_layer_groups(make_job, watch):
    def trained(state, report):
        (model,) = state.model.parts
        groups = [list(model.head.parameters()), *model.encoder.layer_groups()]
        return tuple(group[0].requires_grad for group in groups)

    flags = watch(trained)
    # 12 rows in batches of 4: three steps per epoch; head, embedding and two LSTMs, then everything.
    finetune(make_job("ulmfit", "classification", unfreezing="chain_thaw", unfreeze_epochs=1, epochs=6))
    alone = [tuple(group == number for group in range(4)) for number in range(4)]
    assert flags == [each for each in alone for _ in range(3)] + [(True,) * 4] * 6


def test_a_fraction_of_a_short_epoch_is_one_step(make_job, watch):
    """Each of the three layer groups below the head is unfrozen a step later."""
    counts = watch(lambda state, report: sum(g[0].requires_grad for g in state.model.parts[0].encoder.layer_groups()))
    finetune(make_job("ulmfit", "classification", unfreeze_epochs=0.1, epochs=2))
    assert counts[:4] == [0, 1, 2, 3]


def test_rates_start_anew_in_each_stage_below_that_of_the_head(make_job, watch):
    rates = watch(
        lambda state, report: (report.rate, [each["lr"] / report.rate for each in state.optimizer.param_groups])
    )
    # Three steps per epoch; embedding and two LSTMs: three stages of 30 steps, then one of 30.
    changes: dict[str, Any] = {
        "unfreeze_epochs": 10,
        "epochs": 40,
        "discriminative_from": "head",
        "unfreeze_schedule": "stages",
    }
    training = Training(rate=0.01, batch_size=4, precision="float32", schedule="slanted_triangular")
    changes |= {"training": training, "discriminative": 2.6, "head_scale": 1.0}
    finetune(make_job("ulmfit", "classification", **changes))
    stage = [0.01 * slanted_triangular(step, 30, warmup=0.1, final=0) for step in range(30)]
    assert [rate for rate, _ in rates] == pytest.approx(stage * 4)
    assert [*dict.fromkeys(rates[3][1])] == pytest.approx([1, 1 / 2.6, 2.6**-2, 2.6**-3])


def test_the_penalty_of_activations_is_part_of_the_loss(make_encoder, settings):
    encoder = make_encoder("ulmfit")
    plain, sampler = batches(encoder, settings)
    model, _ = batches(encoder, settings, activation_penalty=0.5)
    for each in (plain, model):
        each.encoder.config = each.encoder.config.model_copy(update={"activation": 2.0, "slowness": 1.0})
    batch = sampler.batch(1)
    hidden = model.encoder.hidden_states(batch["tokens"], batch["lengths"])
    penalty = model.encoder.activation_penalty(hidden, batch["lengths"])
    assert penalty.item() > 0
    torch.testing.assert_close(model.loss(batch), plain.loss(batch) + 0.5 * penalty)
    others, sampler = batches(make_encoder("bert"), settings, activation_penalty=0.5)
    with pytest.raises(ConfigError, match="BERT has no activation regularisation; set activation_penalty to 0"):
        others.loss(sampler.batch(0))


def test_static_vectors_random_frozen_and_fine_tuned(make_things_job, make_encoder, settings):
    """The three ways: start `scratch`; a trained start with method `features`; the same with method `finetune`."""

    def vectors(encoder):
        return encoder.layer_groups()[0][0].detach().clone()

    def of(job):
        return vectors(load_classifier(finetune(job) / "classifier").encoder)

    pretrained = vectors(load_encoder(make_encoder("fasttext")).model)
    assert torch.equal(of(make_things_job("fasttext", name="frozen", method="features")), pretrained)
    training = settings.training.model_copy(update={"rate": 0.03})
    changes = {"head_steps": 0, "epochs": 10, "training": training}
    tuned, random = (
        of(make_things_job("fasttext", name=str(trained), trained=trained, **changes)) for trained in (True, False)
    )
    # Pieces that occur in no text keep their initial vectors, the others change.
    torch.testing.assert_close(tuned[MASK], pretrained[MASK], rtol=0.1, atol=1e-3)
    assert (random[MASK] - pretrained[MASK]).abs().max() > 0.02
    seen = load_encoder(make_encoder("fasttext")).tokenizer.pieces.index("apple")
    assert (tuned[seen] - pretrained[seen]).abs().max() > 0.05
