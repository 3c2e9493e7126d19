"""Contrastive fine-tuning: its loss, its batches, its settings, and that texts of a label become similar."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from components.core.errors import ConfigError
from components.learners.finetuning.stage import finetune
from components.learners.task_models.base import Encoded
from components.learners.task_models.classifier import load_classifier
from components.learners.task_models.kinds import TASKS
from components.learners.ways.contrastive import Contrastive, ContrastiveSampler, label_overlap, pair_loss
from components.models.encoder import load_encoder
from components.settings import contrastive
from components.settings.contrastive import ContrastiveSettings
from components.settings.finetune import FinetuneSettings
from tests.finetuning.interruption import BUDGET, learned

pytestmark = pytest.mark.usefixtures("few_pairs")
NAN = float("nan")


def test_overlap_is_shared_labels_divided_by_all_labels():
    overlap, counts = label_overlap(torch.tensor([[0.0, 1.0], [1.0, NAN], [2.0, NAN], [NAN, NAN], [NAN, NAN]]))
    assert overlap[0].tolist()[1:] == [0.5, 0.0, 0.0, 0.0]
    # A row is not compared with itself, and two rows without labels are not compared.
    expected = ~torch.eye(5, dtype=torch.bool)
    expected[3, 4] = expected[4, 3] = False
    assert torch.equal(counts, expected)


def test_similar_and_dissimilar_pairs_have_the_same_weight():
    half = math.sqrt(0.5)
    vectors = torch.tensor([[2.0, 0.0], [0.0, 3.0], [half, half]])
    # Cosines: 0 (same label), sqrt(1/2) and sqrt(1/2) (different labels).
    actual = pair_loss(vectors, torch.tensor([[0.0], [0.0], [1.0]]))
    assert float(actual) == pytest.approx((1.0 + 0.5) / 2, rel=1e-6)


def sampler(targets: list[list[int]], *, rows: int) -> ContrastiveSampler:
    encoded = [Encoded.of_texts([np.arange(6, 9 + row % 3)]) for row in range(len(targets))]
    return ContrastiveSampler(encoded, [np.asarray(target, dtype=np.float64) for target in targets], rows=rows, seed=0)


def test_classes_of_different_sizes_are_balanced():
    actual = sampler([[0]] * 3 + [[1]] * 30, rows=6)
    steps = [actual.rows(step).tolist() for step in range(10)]
    assert all(Counter(row >= 3 for row in rows) == {False: 3, True: 3} for rows in steps)
    # Every row of a class is used before one is used again.
    uses = Counter(row for rows in steps for row in rows)
    assert all(uses[row] == 10 for row in range(3)) and all(uses[row] == 1 for row in range(3, 33))


def test_many_classes_take_turns_with_two_rows_each():
    actual = sampler([[label] for label in range(10) for _ in range(3)], rows=8)
    assert (actual.width, actual.depth) == (4, 2)
    steps = [Counter(int(row) // 3 for row in actual.rows(step)) for step in range(5)]
    # A class that is the last of one round and the first of the next has up to four rows.
    assert all(set(classes.values()) <= {2, 3} for classes in steps)
    assert {label for classes in steps for label in classes} == set(range(10))


def test_a_row_of_several_labels_is_once_in_a_step_and_rows_without_labels_are_a_class():
    actual = sampler([[0, 1], [0, 1], [0], [1], [], []], rows=12)
    assert len(actual.classes) == 3
    assert actual.rows(0).tolist() == [0, 1, 2, 3, 4, 5]


def test_texts_of_one_label_become_similar(make_job, in_process, monkeypatch):
    monkeypatch.setattr(contrastive, "ROWS", 12)
    changes = {"contrastive": ContrastiveSettings(epochs=25), "head_penalties": [1.0]}
    record = learned(job := make_job("bert", "classification", method="contrastive", **changes))
    first, last = record["curve"]
    assert last["macro_f1"] > first["macro_f1"] and record["best_step"] == 25
    # The encoder is trained; the head fits its new features.
    before = load_encoder(job.encoder).model.state_dict()
    after = load_classifier(job.output / "classifier").encoder.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_the_vectors_of_a_model_without_layers_are_trained_whatever_the_settings(make_job, in_process):
    few = ContrastiveSettings(epochs=1, embeddings=False)
    job = make_job("word2vec", "classification", source=BUDGET, method="contrastive", contrastive=few)
    classifier = load_classifier(finetune(job) / "classifier")
    assert not torch.equal(load_encoder(job.encoder).model.vectors(), classifier.encoder.vectors())


def test_the_number_of_steps_is_bounded(settings):
    def steps(epochs, epoch=5):
        changed = settings.model_copy(update={"contrastive": ContrastiveSettings(epochs=epochs)})
        return Contrastive().schedule(changed, epoch=epoch, taught=0)[0]

    assert (steps(4), steps(0.1), steps(32)) == (20, 1, 104)
    # Nine passes over many rows, at most 416 steps, and no more than the epochs.
    assert (steps(32, 24), steps(32, 1000), steps(2, 24)) == (216, 416, 48)


@pytest.mark.parametrize("kind", sorted(kind for kind, task in TASKS.items() if not task.labels_rows))
def test_kinds_without_labels_of_rows_are_refused(kind, make_job, in_process):
    with pytest.raises(ConfigError, match=f"does not suit kind {kind}; use finetune"):
        finetune(make_job("bert", kind, method="contrastive"))


def test_settings_that_contradict_each_other_are_refused(settings):
    with pytest.raises(ValidationError, match="head_steps must be at least 1"):
        FinetuneSettings.model_validate(settings.model_dump() | {"method": "contrastive", "head_steps": 0})
