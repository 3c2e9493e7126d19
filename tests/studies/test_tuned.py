"""Fine-tuning without one technique at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from components.settings.cluster import ClusterSettings
from components.studies import tuned
from components.studies.frame import Outputs
from components.studies.frozen import Labelled
from components.studies.tuned import TECHNIQUES, without
from tests.studies.conftest import findings, fits


@pytest.fixture(params=[{}])
def ready(outputs: Outputs, add_task: Any, add_encoder: Any, request: pytest.FixtureRequest) -> Outputs:
    """A task, an adapted and a pretrained encoder, and settings with three techniques."""
    add_task(**request.param)
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


def test_a_change_is_paired_with_the_same_labels_and_has_the_last_step(ready, monkeypatch):
    trained = []

    def train_all(specs, **options):
        runs = [fit for (fit,) in specs["finetune"]]
        trained.append([(run.budget, run.seed, run.job.start, run.settings) for run in runs])
        scores = [0.5 + 0.125 * run.seed - 0.25 * (run.settings.discriminative == 1) for run in runs]
        # The first point of a curve is the head on frozen features, which is better here.
        curves = ([{"f1": 0.99}, {"f1": score}] for score in scores)
        return [(SimpleNamespace(record={"score": "f1", "curve": curve}),) for curve in curves]

    monkeypatch.setattr(tuned, "train_all", train_all)
    monkeypatch.setattr(tuned, "clear", lambda runs, cluster: None)
    actual = findings(ready, "ablation", encoder="ulmfit-adapted", budget=2, seeds=3)
    fits(actual, "ablation")
    scores = dict(row[::2] for row in actual.chapter.tables[0].rows)
    # The changes of all seeds are equal, so the interval has no width.
    assert scores["without discriminative rates"] == "-0.250"
    assert scores["without gradual unfreezing"] == "+0.000"
    assert actual.chapter.lead == ["aws-type, ulmfit-adapted: change is clearly not 0 for none of 5."]
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


@pytest.mark.parametrize("ready", [{"selection": "dev"}], indirect=True)
@pytest.mark.parametrize(
    ("block", "choices"),
    [
        ("bert", ["first", "second_to_last", "last", "sum", "sum_last_four", "concat_last_four", "mix"]),
        ("word2vec", ["first", "last", "mix"]),
    ],
)
def test_every_choice_of_layers_that_an_encoder_has(ready, add_encoder, monkeypatch, block, choices):
    add_encoder(block)
    trained: dict[str, Any] = {}

    def answers(right: int) -> dict[str, Any]:
        split = Labelled.of(ready, "aws-type").dev
        wrong = np.arange(len(split)) >= right
        return {"dev": list(np.eye(2)[np.where(wrong, 1 - split.labels, split.labels)])}

    def train_all(specs, *, title, **options):
        trained[title] = specs["features"][0][0].settings
        right = 30 + 10 * (title == "last")
        return [(SimpleNamespace(answers=answers(right + fit.seed)),) for (fit,) in specs["features"]]

    monkeypatch.setattr(tuned, "train_all", train_all)
    monkeypatch.setattr(tuned, "clear", lambda runs, cluster: None)
    actual = findings(ready, "layers", encoder=block, budget=2, seeds=2)
    fits(actual, "layers")
    assert list(trained) == choices and all(of.layers == name for name, of in trained.items())
    rows = {row["layers"]: row for row in actual.numbers["aws-type"]}
    last, first = rows["last"]["score"], rows["first"]
    assert last["mean"] == pytest.approx(40.5 / 60, abs=0.02)
    # The difference to the last layer is paired by sample and row of dev: 10 of 60 rows differ.
    difference = first["minus the last layer"]
    assert difference["mean"] == pytest.approx(first["score"]["mean"] - last["mean"])
    assert -0.3 < difference["low"] < difference["mean"] < difference["high"] < 0
    assert rows["last"]["minus the last layer"] is None
    assert actual.chapter.tables[0].rows[0][1] == "first"
    assert "macro F1 on dev at 2 labels a class" in actual.chapter.text[0]


@pytest.mark.slow
def test_layers_are_learned(ready, monkeypatch):
    monkeypatch.setattr(tuned, "CHOICES", ("first", "last", "mix"))
    # A key of fine-tuning says nothing about a head on a frozen encoder.
    ready.params.finetune["ulmfit"] = ready.params.finetune["ulmfit"].model_copy(update={"discriminative": 1.5})
    rows = findings(ready, "layers", encoder="ulmfit-adapted", budget=5, seeds=2).numbers["aws-type"]
    # A word determines the class, and the embedding represents it.
    assert rows[0]["score"]["mean"] > 0.6 and len(rows) == 3
