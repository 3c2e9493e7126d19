"""BnB, BnB+, AnB and AnB+: copied, trained and frozen layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from components.errors import ArtifactError
from components.settings.cluster import ClusterSettings
from components.studies import transferability
from components.studies.outputs import Outputs
from components.studies.transferability import Network, learn, partly_copied
from components.task_models.model import TaskModel
from components.training.loop import TrainingState


def one_by_one(function: Any, items: Any, *, settings: Any) -> Any:
    """`map_parallel` in this process, in reverse order."""
    for index, item in reversed(list(enumerate(items))):
        yield index, function(item)


@pytest.fixture
def network(outputs: Outputs, add_task: Any, add_encoder: Any) -> Network:
    add_encoder("bert")
    return Network(
        examples=add_task(),
        encoder=outputs.out / "encoder" / "bert" / "adapted",
        settings=outputs.params.finetune["bert"].model_copy(update={"min_steps": 0}),
        copied=2,
        learning=False,
        budget=2,
        seed=0,
        epochs=2,
    )


def test_lower_groups_are_copied_and_the_others_depend_on_the_seed(outputs: Outputs, network: Network) -> None:
    loaded = outputs.encoder("bert", "adapted")
    own = loaded.model.layer_groups()
    random = partly_copied(loaded, 0, seed=3).layer_groups()
    for copied in range(len(own) + 1):
        found = partly_copied(loaded, copied, seed=3).layer_groups()
        for index, group in enumerate(found):
            expected = own if index < copied else random
            assert all(torch.equal(a, b) for a, b in zip(group, expected[index], strict=True)), (copied, index)
    other = partly_copied(loaded, 2, seed=4).layer_groups()
    assert not torch.equal(other[-1][0], random[-1][0]) and torch.equal(other[0][0], own[0][0])


@pytest.mark.parametrize("learning", [False, True])
def test_copied_layers_are_frozen_unless_trained(
    outputs: Outputs, network: Network, monkeypatch: pytest.MonkeyPatch, learning: bool
) -> None:
    kept: list[TaskModel] = []
    fresh = TrainingState.fresh.__func__

    def remember(cls: Any, model: TaskModel, *arguments: Any, **settings: Any) -> TrainingState:
        kept.append(model)
        return fresh(cls, model, *arguments, **settings)

    monkeypatch.setattr(TrainingState, "fresh", classmethod(remember))
    score = learn(Network(**{**vars(network), "learning": learning}))
    assert 0 <= score <= 1
    (model,) = kept
    before = partly_copied(outputs.encoder("bert", "adapted"), 2, seed=0).layer_groups()
    for index, (old, new) in enumerate(zip(before, model.encoder.layer_groups(), strict=True)):
        moved = any(not torch.equal(a, b.cpu()) for a, b in zip(old, new, strict=True))
        assert moved == (learning or index >= 2), index
    assert model.features.layers == "last"


def test_training_is_deterministic(network: Network) -> None:
    assert learn(network) == learn(network)


def test_the_study(outputs: Outputs, network: Network, add_encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add_encoder("bert", "pretrained", seed=1)
    monkeypatch.setattr(transferability, "map_parallel", one_by_one)
    asked: list[Network] = []

    def scored(network: Network) -> float:
        asked.append(network)
        return network.copied / 10 + network.learning / 100 + network.seed / 50 + ("pretrained" in str(network.encoder))

    monkeypatch.setattr(transferability, "learn", scored)
    found = transferability.run(outputs, encoder="bert", seeds=2)
    # Four groups and two seeds: 4 series with 4 values of n, and once from scratch.
    assert len(asked) == 2 * (4 * 4 + 1)
    scores = found.numbers["scores"]
    assert scores["BnB"]["2"] == pytest.approx([0.2, 0.22]) and scores["BnB+"]["2"] == pytest.approx([0.21, 0.23])
    assert scores["AnB"]["4"] == pytest.approx([1.4, 1.42]) and scores["AnB+"]["1"] == pytest.approx([1.11, 1.13])
    assert scores["AnB"]["0"] == scores["BnB+"]["0"] == pytest.approx([0.01, 0.03])
    assert (
        found.chapter.lead[0]
        == "aws-type, bert: AnB+ with 4 of 4 copied layer groups is best (1.420); training from scratch reaches 0.020."
    )
    assert (
        found.chapter.tables[0].columns == ["n", "BnB", "BnB+", "AnB", "AnB+"]
        and len(found.chapter.tables[0].rows) == 5
    )
    assert found.numbers["labels"] == 5


def test_the_study_with_training(
    outputs: Outputs, network: Network, add_encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_encoder("word2vec")
    add_encoder("word2vec", "pretrained", seed=1)
    monkeypatch.setattr(transferability, "map_parallel", one_by_one)
    outputs.params = outputs.params.model_copy(update={"cluster": ClusterSettings(launcher="local")})
    found = transferability.run(outputs, encoder="word2vec", seeds=1, epochs=1, budget=2)
    assert found.numbers["groups"] == 1 and all(
        0 <= s[0] <= 1 for of in found.numbers["scores"].values() for s in of.values()
    )
    # A single seed has no interval.
    assert not any("[" in cell for row in found.chapter.tables[0].rows for cell in row)
    assert set(outputs.read) == {"examples/aws-type", "encoder/word2vec/adapted", "encoder/word2vec/pretrained"}


def test_both_encoders_are_needed(outputs: Outputs, network: Network) -> None:
    with pytest.raises(ArtifactError, match="bert/pretrained: missing; run `headstart stage pretrain --item bert`"):
        transferability.run(outputs, encoder="bert")
