"""Fine-tuning without one technique at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from components.settings.cluster import ClusterSettings
from components.studies import ablation
from components.studies.ablation import EARLIER, TECHNIQUES, WHOLE, without
from components.studies.frame import Outputs
from tests.studies.conftest import findings


@pytest.fixture
def ready(outputs: Outputs, add_task: Any, add_encoder: Any) -> Outputs:
    """A task, an adapted and a pretrained encoder, and settings with three techniques."""
    add_task()
    for seed, start in enumerate(("adapted", "pretrained")):
        add_encoder("ulmfit", start, seed=seed)
    given = outputs.params.finetune["ulmfit"]
    training = given.training.model_copy(update={"schedule": "slanted_triangular"})
    off = {name: value for of in TECHNIQUES.values() for name, value in of.items() if name != "training"}
    changes = {"method": "finetune", "epochs": 1, "min_steps": 2, "evaluations": 1, "head_steps": 5}
    changes |= {"discriminative": 2.6, "unfreeze_epochs": 1, "words": "none", "frozen": False, "training": training}
    outputs.params.__dict__["cluster"] = ClusterSettings(launcher="local")
    outputs.params.finetune["ulmfit"] = given.model_copy(update=off | changes)
    return outputs


@pytest.mark.slow
def test_each_technique_of_the_settings_has_a_row(ready, monkeypatch):
    used = ["gradual unfreezing", "discriminative rates"]
    monkeypatch.setattr(ablation, "TECHNIQUES", {name: TECHNIQUES[name] for name in used})
    actual = findings(ready, "ablation", encoder="ulmfit-adapted", budget=2, seeds=2)
    (table,) = actual.chapter.tables
    assert [row[0] for row in table.rows] == [WHOLE, *(f"without {of}" for of in (EARLIER["pretrained"], *used))]


def test_a_change_is_paired_with_the_same_labels_and_has_the_last_step(ready, monkeypatch):
    trained = []

    def train_all(specs, **options):
        runs = [fit for (fit,) in specs["finetune"]]
        trained.append([(run.budget, run.seed, run.job.encoder.name, run.settings) for run in runs])
        scores = [0.5 + 0.125 * run.seed - 0.25 * (run.settings.discriminative == 1) for run in runs]
        # The first point of a curve is the head on frozen features, which is better here.
        curves = ([{"f1": 0.99}, {"f1": score}] for score in scores)
        return [[SimpleNamespace(record={"score": "f1", "curve": curve})] for curve in curves]

    monkeypatch.setattr(ablation, "train_all", train_all)
    monkeypatch.setattr(ablation, "clear", lambda runs, cluster: None)
    actual = findings(ready, "ablation", encoder="ulmfit-adapted", budget=2, seeds=3)
    scores = dict(row[::2] for row in actual.chapter.tables[0].rows)
    # The changes of all seeds are equal, so the interval has no width.
    assert scores["without discriminative rates"] == "-0.250"
    assert scores["without gradual unfreezing"] == "+0.000"
    assert len(actual.chapter.lead) == 2 and "without discriminative rates" in actual.chapter.lead[1]
    assert {tuple(of[:2] for of in runs) for runs in trained} == {((2, 0), (2, 1), (2, 2))}
    assert [runs[0][2] for runs in trained] == ["adapted", "pretrained", *["adapted"] * 4]
    whole, _, *others = (runs[0][3] for runs in trained)
    changed = [{name for name, value in of if value != getattr(whole, name)} for of in others]
    assert changed == [{"unfreeze_epochs"}, {"discriminative"}, {"training"}, {"head_steps"}]


def test_chunks_are_a_technique_only_where_texts_are_cut(ready):
    given = ready.params.finetune["ulmfit"].model_copy(update={"chunks_learned": 4})
    chunks = "gradients through all chunks"
    assert without(chunks, given.model_copy(update={"chunk": None})).chunks_learned == 4
    assert without(chunks, given.model_copy(update={"chunk": 16})).chunks_learned == 1
