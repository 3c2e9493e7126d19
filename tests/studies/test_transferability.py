"""Base networks of two tasks, and BnB, BnB+, AnB and AnB+: copied, trained and frozen layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from components.core.errors import ConfigError
from components.models.base import LanguageModel
from components.settings.cluster import ClusterSettings
from components.studies import transferability
from components.studies.frame import Outputs
from components.studies.transferability import Network, learn
from components.training.checkpoint import CheckpointStore
from components.training.loop import TrainingState
from tests.studies.conftest import findings, fits


def one_by_one(function: Any, items: Any, *, settings: Any) -> Any:
    """`map_parallel` in this process, in reverse order."""
    for index, item in reversed(list(enumerate(items))):
        yield index, function(item)


@pytest.fixture
def network(outputs: Outputs, add_task: Any, add_encoder: Any, tmp_path: Any) -> Network:
    """Base B."""
    add_encoder("bert")
    return Network(
        examples=add_task(),
        encoder=outputs.out / "encoder" / "bert" / "adapted",
        settings=outputs.params.finetune["bert"].model_copy(update={"min_steps": 0}),
        budget=2,
        seed=0,
        epochs=2,
        storage=str(tmp_path / "store"),
        key="base",
    )


def changed(network: Network, **values: Any) -> Network:
    return Network(**{**vars(network), "key": "", **values})


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
def test_copied_layers_come_from_the_trained_base_and_are_frozen_unless_trained(network, trained, learning):
    learn(network)
    base, initial = trained[0]
    after = [group[0].detach().clone() for group in base.layer_groups()]
    assert not any(torch.equal(old, new) for old, new in zip(initial, after, strict=True)), "base B is trained"
    assert 0 <= learn(changed(network, source="base", copied=2, learning=learning)) <= 1
    copy, before = trained[1]
    for index, group in enumerate(copy.layer_groups()):
        assert torch.equal(before[index], after[index]) == (index < 2), index
        # Other random weights than those from which base B started, together with which the copied layers learned.
        assert not torch.equal(before[index], initial[index])
        assert torch.equal(before[index], group[0]) == (index < 2 and not learning), index


def test_a_missing_base_is_reported(network):
    with pytest.raises(ConfigError, match="the base network gone is missing; run the study again"):
        learn(changed(network, source="gone", copied=1))


def test_the_study(outputs, network, add_task, monkeypatch):
    add_task("aws-service")
    monkeypatch.setattr(transferability, "map_parallel", one_by_one)
    asked: list[Network] = []

    def scored(network):
        asked.append(network)
        if not network.source:
            CheckpointStore(network.storage, key=network.key).save(1, {"a": torch.zeros(1)}, {})
            return 0.5 + network.seed / 50
        a = "-A-" in network.source
        return 0.5 - (0.0 if network.learning else network.copied / 10 * (1 + a)) + network.seed / 50 + a / 100

    monkeypatch.setattr(transferability, "learn", scored)
    actual = findings(outputs, "transferability", encoder="bert", other="aws-service", seeds=2)
    fits(actual, "transferability")
    # Two bases; four groups: 4 series with 4 values of n; two seeds.
    assert len(asked) == 2 * (2 + 4 * 4)
    bases, copies = asked[:4], asked[4:]
    assert {base.examples.name for base in bases} == {"aws-type", "aws-service"} and all(base.key for base in bases)
    assert all(copy.examples.name == "aws-type" and not copy.key for copy in copies)
    assert {copy.source for copy in copies} == {base.key for base in bases}
    assert all(CheckpointStore(base.storage, key=base.key).latest() is None for base in bases), "cleared"
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


def test_a_second_task_is_needed(outputs, network):
    with pytest.raises(ConfigError, match="--other: needs a task of data.tasks other than aws-type"):
        findings(outputs, "transferability", encoder="bert", other="aws-type")


def test_the_random_layers_depend_on_the_seed_and_not_on_the_base(network, trained):
    learn(network)
    learn(changed(network, key="other", seed=1))
    for source, seed in (("base", 0), ("other", 0), ("base", 2)):
        learn(changed(network, source=source, copied=2, learning=False, seed=seed))
    (_, item), (_, other), (_, third) = trained[2:]
    assert torch.equal(item[3], other[3]) and not torch.equal(item[3], third[3])
    assert not torch.equal(item[0], other[0]) and torch.equal(item[0], third[0])
