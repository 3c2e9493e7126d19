"""Base networks of two tasks, and BnB, BnB+, AnB and AnB+: copied, trained and frozen layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from components.core.errors import ConfigError
from components.models.base import LanguageModel
from components.settings.cluster import ClusterSettings
from components.studies import transferability
from components.studies.frame import Outputs
from components.studies.frozen import Labelled
from components.studies.transferability import Networks, learn
from components.training.loop import TrainingState
from tests.studies.conftest import findings, fits


def one_by_one(function: Any, items: Any, *, settings: Any) -> Any:
    """`map_parallel` in this process, in reverse order."""
    for index, item in reversed(list(enumerate(items))):
        yield index, function(item)


def of_task(outputs: Outputs, add_task: Any, name: str) -> Labelled:
    add_task(name)
    return Labelled.of(outputs, name, 2)


@pytest.fixture
def networks(outputs: Outputs, add_task: Any, add_encoder: Any) -> Networks:
    add_encoder("bert")
    return Networks(
        tasks={base: of_task(outputs, add_task, name) for base, name in {"A": "aws-service", "B": "aws-type"}.items()},
        encoder=outputs.out / "encoder" / "bert" / "adapted",
        settings=outputs.params.finetune["bert"].model_copy(update={"min_steps": 0}),
        seed=0,
        epochs=2,
    )


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[LanguageModel, list[torch.Tensor]]]:
    """The encoder of every network that is trained, with its weights before training."""
    kept: list[tuple[LanguageModel, list[torch.Tensor]]] = []
    fresh = TrainingState.fresh.__func__

    def remember(cls: Any, model: Any, *arguments: Any, **settings: Any) -> TrainingState:
        kept.append((model.encoder, [group[0].detach().clone() for group in model.encoder.layer_groups()]))
        assert model.features.layers == "last"
        return fresh(cls, model, *arguments, **settings)

    monkeypatch.setattr(TrainingState, "fresh", classmethod(remember))
    return kept


@pytest.mark.parametrize("learning", [False, True])
def test_copied_layers_come_from_the_trained_base_and_are_frozen_unless_trained(networks, trained, learning):
    source, _ = learn(networks, "B")
    base, initial = trained[0]
    after = [group[0].detach().clone() for group in base.layer_groups()]
    assert not any(torch.equal(old, new) for old, new in zip(initial, after, strict=True)), "base B is trained"
    assert 0 <= learn(networks, "B", source=source, copied=2, learning=learning)[1] <= 1
    copy, before = trained[1]
    for index, group in enumerate(copy.layer_groups()):
        assert torch.equal(before[index], after[index]) == (index < 2), index
        # Other random weights than those from which base B started, together with which the copied layers learned.
        assert not torch.equal(before[index], initial[index])
        assert torch.equal(before[index], group[0]) == (index < 2 and not learning), index


def test_the_study(outputs, networks, monkeypatch):
    monkeypatch.setattr(transferability, "map_parallel", one_by_one)
    asked: list[tuple[str, str | None, int]] = []

    def scored(networks, base, *, source=None, copied=0, learning=True):
        asked.append((base, source, copied))
        assert networks.tasks[base].facts.task == {"A": "aws-service", "B": "aws-type"}[base]
        lost = 0.0 if learning else copied / 10 * (1 + (source == "A"))
        return base, 0.5 - lost + networks.seed / 50 + (source == "A") / 100

    monkeypatch.setattr(transferability, "learn", scored)
    actual = findings(outputs, "transferability", encoder="bert", other="aws-service", seeds=2)
    fits(actual, "transferability")
    # Two bases; four groups: 4 series with 4 values of n; two seeds.
    assert len(asked) == 2 * (2 + 4 * 4) and [of[:2] for of in asked[:2]] == [("A", None), ("B", None)]
    assert {of[0] for of in asked if of[2]} == {"B"}
    scores, changes = actual.numbers.values()
    means = {(series, row["n"]): row[series]["mean"] for row in scores for series in ("BnB", "BnB+", "AnB", "AnB+")}
    assert [means[series, 0] for series in ("BnB", "AnB+")] == pytest.approx([0.51, 0.51]), "n = 0 is base B"
    assert means["BnB", 2] == pytest.approx(0.31) and means["AnB+", 1] == pytest.approx(0.52)
    by_series = {(row["series"], row["n"]): row["minus B"]["mean"] for row in changes}
    assert by_series["AnB", 4] == pytest.approx(-0.79) and by_series["BnB", 4] == pytest.approx(-0.4), "paired by seed"
    assert actual.chapter.tables[0].columns == ["n", "BnB", "BnB+", "AnB", "AnB+"] and len(scores) == 5
    assert "100 labels a class" in actual.chapter.text[0]


def test_the_study_with_training(outputs, add_task, add_encoder, monkeypatch, tmp_path):
    add_task()
    add_task("aws-service")
    add_encoder("word2vec")
    monkeypatch.setattr(transferability, "map_parallel", one_by_one)
    cluster = ClusterSettings(launcher="local", storage=str(tmp_path / "store"))
    outputs.params = outputs.params.model_copy(update={"cluster": cluster})
    actual = findings(outputs, "transferability", encoder="word2vec", other="aws-service", seeds=1, epochs=1, budget=2)
    scores, _ = actual.numbers.values()
    assert len(scores) == 2 and all(0 <= row["AnB"]["mean"] <= 1 for row in scores)
    # A single seed has no interval.
    assert not any("[" in cell for row in actual.chapter.tables[0].rows for cell in row)
    assert not any("[" in sentence for sentence in actual.chapter.lead)
    assert set(outputs.read) == {"examples/aws-type", "examples/aws-service", "encoder/word2vec/adapted"}


def test_a_second_task_is_needed(outputs, networks):
    with pytest.raises(ConfigError, match="--other: needs a task of data.tasks other than aws-type"):
        findings(outputs, "transferability", encoder="bert", other="aws-type")


def test_the_random_layers_depend_on_the_seed_and_not_on_the_base(networks, trained):
    sources = [learn(networks, base)[0] for base in "BA"]
    for source, seed in ((sources[0], 0), (sources[1], 0), (sources[0], 2)):
        learn(replace(networks, seed=seed), "B", source=source, copied=2, learning=False)
    (_, item), (_, other), (_, third) = trained[2:]
    assert torch.equal(item[3], other[3]) and not torch.equal(item[3], third[3])
    assert not torch.equal(item[0], other[0]) and torch.equal(item[0], third[0])
