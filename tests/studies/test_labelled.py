"""Studies of an encoder on the labels of a task: techniques and layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from components.core.errors import ArtifactError, ConfigError
from components.settings.cluster import ClusterSettings
from components.studies import labelled
from components.studies.frame import Outputs
from components.studies.labelled import CHOICES, TECHNIQUES, Labelled, without
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


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`trained(run)` trains nothing: `run` makes the result of a training; returns title -> fits."""
    asked: dict[str, list[Any]] = {}

    def install(result: Any) -> dict[str, list[Any]]:
        def train_all(ways: Any, *, title: str, **options: Any) -> Any:
            ((_, runs),) = ways.items()
            asked[title] = [fit for (fit,) in runs]
            return [(result(title, fit),) for fit in asked[title]]

        monkeypatch.setattr(labelled, "train_all", train_all)
        monkeypatch.setattr(labelled, "clear", lambda runs, cluster: None)
        return asked

    return install


def test_a_change_is_paired_with_the_same_labels_and_has_the_last_step(ready, trained):
    def run(title: str, fit: Any) -> Any:
        score = 0.5 + 0.125 * fit.seed - 0.25 * (fit.settings.discriminative == 1)
        # The first point of a curve is the head on frozen features, which is better here.
        return SimpleNamespace(record={"score": "f1", "curve": [{"f1": 0.99}, {"f1": score}]})

    asked = trained(run)
    actual = findings(ready, "ablation", encoder="ulmfit-adapted", budget=2, seeds=3)
    fits(actual, "ablation")
    scores = dict(row[::2] for row in actual.chapter.tables[0].rows)
    # The changes of all seeds are equal, so the interval has no width.
    assert (scores["without discriminative rates"], scores["without gradual unfreezing"]) == ("-0.250", "+0.000")
    assert actual.chapter.lead == ["aws-type, ulmfit-adapted: change is clearly not 0 for none of 5."]
    assert {tuple((of.budget, of.seed) for of in runs) for runs in asked.values()} == {((2, 0), (2, 1), (2, 2))}
    (whole, *_), (earlier, *_), *others = asked.values()
    assert (whole.job.start, earlier.job.start) == ("adapted", "pretrained")
    changed = [{name for name, value in of[0].settings if value != getattr(whole.settings, name)} for of in others]
    assert changed == [{"unfreeze_epochs"}, {"discriminative"}, {"training"}, {"head_steps"}]
    asked.clear()
    findings(ready, "ablation", encoder="ulmfit-adapted", budget=2, lacking="discriminative rates")
    assert [*asked] == ["all techniques", "without discriminative rates"]
    with pytest.raises(ConfigError, match="--lacking 'dropout': ulmfit has adaptation to the domain, gradual"):
        findings(ready, "ablation", encoder="ulmfit-adapted", budget=2, lacking="dropout")


def test_chunks_are_a_technique_only_where_texts_are_cut(ready):
    given = ready.params.finetune["ulmfit"].model_copy(update={"chunks_learned": 4})
    learned = [
        without("gradients through all chunks", given.model_copy(update={"chunk": chunk})) for chunk in (None, 16)
    ]
    assert [of.chunks_learned for of in learned] == [4, 1]


@pytest.mark.parametrize("ready", [{"selection": "dev"}], indirect=True)
@pytest.mark.parametrize("block", ["bert", "word2vec"])
def test_every_choice_of_layers_that_an_encoder_has(ready, add_encoder, trained, block):
    add_encoder(block)
    split = Labelled.of(ready, "aws-type").dev

    def run(title: str, fit: Any) -> Any:
        wrong = np.arange(len(split)) >= 30 + 10 * (title == "last") + fit.seed
        return SimpleNamespace(answers={"dev": list(np.eye(2)[np.where(wrong, 1 - split.labels, split.labels)])})

    asked = trained(run)
    actual = findings(ready, "layers", encoder=block, budget=2, seeds=2)
    fits(actual, "layers")
    assert list(asked) == (list(CHOICES) if block == "bert" else ["first", "last", "mix"])
    assert all(of[0].settings.layers == name for name, of in asked.items())
    rows = {row["layers"]: row for row in actual.numbers["aws-type"]}
    last, first = rows["last"]["score"], rows["first"]
    assert last["mean"] == pytest.approx(40.5 / 60, abs=0.02) and rows["last"]["minus the last layer"] is None
    # The difference to the last layer is paired by sample and row of dev: 10 of 60 rows differ.
    difference = first["minus the last layer"]
    assert difference["mean"] == pytest.approx(first["score"]["mean"] - last["mean"])
    assert -0.3 < difference["low"] < difference["mean"] < difference["high"] < 0
    assert "macro F1 on dev at 2 labels a class" in actual.chapter.text[0]


@pytest.mark.slow
def test_layers_are_learned(ready, monkeypatch):
    monkeypatch.setattr(labelled, "CHOICES", ("first", "last", "mix"))
    # A key of fine-tuning says nothing about a head on a frozen encoder.
    ready.params.finetune["ulmfit"] = ready.params.finetune["ulmfit"].model_copy(update={"discriminative": 1.5})
    rows = findings(ready, "layers", encoder="ulmfit-adapted", budget=5, seeds=2).numbers["aws-type"]
    # A word determines the class, and the embedding represents it.
    assert rows[0]["score"]["mean"] > 0.6 and len(rows) == 3


def test_what_a_task_must_have(outputs, add_task, monkeypatch):
    with pytest.raises(ArtifactError, match="examples/aws-type: missing; run `headstart stage examples --item"):
        Labelled.of(outputs, "")
    add_task()
    monkeypatch.setattr(labelled, "LABELLED", ("pair",))
    with pytest.raises(ConfigError, match="this study needs one label per text or word, which classification does not"):
        Labelled.of(outputs, "aws-type")
