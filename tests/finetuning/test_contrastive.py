"""Contrastive fine-tuning: a contract of every family with every kind whose rows have labels, and its settings."""

import json
from itertools import cycle

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from components.core.errors import ConfigError
from components.data.tasks.examples import read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.learners.finetuning.stage import finetune
from components.learners.task_models.classifier import load_classifier
from components.learners.task_models.kinds import TASKS
from components.learners.ways.contrastive import Contrastive
from components.models import FAMILIES
from components.models.encoder import load_encoder
from components.settings import contrastive
from components.settings.contrastive import ContrastiveSettings
from components.settings.finetune import FinetuneSettings
from tests.finetuning.interruption import answers_of

from .test_crossvalidation import BUDGET

LABELLED = sorted(kind for kind, task in TASKS.items() if task.labels_rows)
FEW = ContrastiveSettings(epochs=1)
pytestmark = pytest.mark.usefixtures("few_pairs")


@pytest.mark.parametrize(("family", "kind"), [*zip(sorted(FAMILIES), cycle(LABELLED), strict=False)])
def test_every_family_learns_every_kind_by_contrast(family, kind, make_job, in_process):
    job = make_job(family, kind, method="contrastive", contrastive=FEW)
    output = finetune(job)
    facts, test, dev = read_facts(job.examples), read_split(job.examples, "test"), read_split(job.examples, "dev")
    scoring = scoring_for(kind, facts.labels)
    (record,) = json.loads((output / "runs.json").read_text())
    assert [point["step"] for point in record["curve"]] == [0, 2]
    best = max(point[scoring.main] for point in record["curve"])
    on_dev = [np.asarray(answer, dtype=np.float32) for answer in answers_of(output, "dev")]
    assert scoring.score(dev.fields, dev.targets, on_dev)[scoring.main] == pytest.approx(best, abs=1e-5)
    served = load_classifier(output / "classifier").answer(test.fields)
    for answer, expected in zip(served, answers_of(output, "test"), strict=True):
        np.testing.assert_array_equal(answer, np.asarray(expected, dtype=np.float32))


def test_texts_of_one_label_become_similar(make_job, in_process, monkeypatch):
    monkeypatch.setattr(contrastive, "ROWS", 12)
    changes = {"contrastive": ContrastiveSettings(epochs=25), "head_penalties": [1.0]}
    job = make_job("bert", "classification", method="contrastive", **changes)
    output = finetune(job)
    (record,) = json.loads((output / "runs.json").read_text())
    first, last = record["curve"]
    assert last["macro_f1"] > first["macro_f1"] and record["best_step"] == 25
    # The encoder is trained; the head fits its new features.
    before = load_encoder(job.encoder).model.state_dict()
    classifier = load_classifier(output / "classifier")
    after = classifier.model.encoder.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_the_vectors_of_a_model_without_layers_are_trained_whatever_the_settings(make_job, in_process):
    few = ContrastiveSettings(epochs=1, embeddings=False)
    job = make_job("word2vec", "classification", source=BUDGET, method="contrastive", contrastive=few)
    classifier = load_classifier(finetune(job) / "classifier")
    before = load_encoder(job.encoder).model.vectors()
    assert not torch.equal(before, classifier.model.encoder.vectors())


def test_the_number_of_steps_is_bounded(settings):
    def steps(epochs, epoch=5):
        changed = settings.model_copy(update={"contrastive": ContrastiveSettings(epochs=epochs)})
        return Contrastive().steps(changed, epoch=epoch, taught=0)

    assert (steps(4), steps(0.1), steps(32)) == (20, 1, 104)
    # Nine passes over many rows, at most 416 steps, and no more than the epochs.
    assert (steps(32, 24), steps(32, 1000), steps(2, 24)) == (216, 416, 48)


@pytest.mark.parametrize("kind", sorted(set(TASKS) - set(LABELLED)))
def test_kinds_without_labels_of_rows_are_refused(kind, make_job, in_process):
    with pytest.raises(ConfigError, match=f"does not suit kind {kind}; use finetune"):
        finetune(make_job("bert", kind, method="contrastive"))


def test_settings_that_contradict_each_other_are_refused(settings):
    def validated(**changes):
        return FinetuneSettings.model_validate(settings.model_dump() | changes)

    with pytest.raises(ValidationError, match="head_steps must be at least 1"):
        validated(method="contrastive", head_steps=0)
