"""Base networks of two tasks, and BnB, BnB+, AnB and AnB+: copied, trained and frozen layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from components.core.errors import ConfigError
from components.learners.finetuning.fit import Fit
from components.settings.cluster import ClusterSettings
from components.studies import labelled
from components.studies.frame import Outputs
from components.studies.labelled import learn
from components.training.loop import TrainingState
from tests.studies.conftest import findings, fits


@pytest.fixture(autouse=True)
def _one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`map_parallel` in this process, in reverse order."""

    def mapped(function: Any, items: Any, *, settings: Any) -> Any:
        for index, item in reversed(list(enumerate(items))):
            yield index, function(item)

    monkeypatch.setattr(labelled, "map_parallel", mapped)


@pytest.fixture
def pair(outputs: Outputs, add_task: Any, run_with: Any, tmp_path: Any) -> Outputs:
    """Two tasks and encoders."""
    for name in ("aws-service", "aws-type"):
        add_task(name)
    run_with("bert", "word2vec")
    cluster = ClusterSettings(launcher="local", storage=str(tmp_path / "store"))
    settings = {name: of.model_copy(update={"min_steps": 0}) for name, of in outputs.params.finetune.items()}
    outputs.params = outputs.params.model_copy(update={"cluster": cluster, "finetune": settings})
    return outputs


@pytest.fixture
def bases(pair: Outputs, monkeypatch: pytest.MonkeyPatch) -> dict[str, Fit]:
    """The trainings of the base networks with the first seed."""
    seen: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(labelled, "map_parallel", lambda _, items, settings: seen.extend(items) or [(0, [[0.0] * 2] * 4)])
        findings(pair, "transferability", encoder="bert", other="aws-service", budget=2, epochs=2, seeds=1)
    (actual,) = seen
    return dict(actual)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, list[torch.Tensor]]]:
    """The encoder of every network that is trained, with its weights before training."""
    kept: list[tuple[Any, list[torch.Tensor]]] = []
    train = labelled.Run.train

    def remember(run: Any, store: Any) -> None:
        (member,) = run.members
        kept.append((member.model.encoder, [of[0].detach().clone() for of in member.model.encoder.layer_groups()]))
        assert member.model.features.layers == "last" and isinstance(run.state, TrainingState)
        train(run, store)

    monkeypatch.setattr(labelled.Run, "train", remember)
    return kept


@pytest.mark.parametrize("learning", [False, True])
def test_copied_layers_come_from_the_trained_base_and_are_frozen_unless_trained(bases, trained, learning):
    source, _ = learn(bases["B"])
    base, initial = trained[0]
    after = [group[0].detach().clone() for group in base.layer_groups()]
    assert not any(torch.equal(old, new) for old, new in zip(initial, after, strict=True)), "base B is trained"
    assert 0 <= learn(bases["B"], source=source, copied=2, learning=learning)[1] <= 1
    copy, before = trained[1]
    for index, group in enumerate(copy.layer_groups()):
        assert torch.equal(before[index], after[index]) == (index < 2), index
        # Other random weights than those from which base B started, together with which the copied layers learned.
        assert not torch.equal(before[index], initial[index])
        assert torch.equal(before[index], group[0]) == (index < 2 and not learning), index


def test_the_random_layers_depend_on_the_seed_and_not_on_the_base(bases, trained):
    sources = [learn(bases[base])[0] for base in "BA"]
    for source, seed in ((sources[0], 0), (sources[1], 0), (sources[0], 2)):
        learn(replace(bases["B"], seed=seed), source=source, copied=2, learning=False)
    (_, base_b), (_, base_a), (_, item), (_, other), (_, third) = trained
    assert not torch.equal(base_a[3], base_b[3])
    assert torch.equal(item[3], other[3]) and not torch.equal(item[3], third[3])


def test_the_study(pair, monkeypatch):
    asked: list[tuple[str, str | None, int]] = []

    def scored(fit, *, source=None, copied=0, learning=True):
        asked.append((fit.job.task, source, copied))
        lost = 0.0 if learning else copied / 10 * (1 + (source == "A"))
        score = 0.5 - lost + fit.seed / 50 + (source == "A") / 100
        return type("Network", (str,), {"encoder": pair.encoder("bert", "adapted").model})(
            "A" if fit.job.task == "aws-service" else "B"
        ), score

    monkeypatch.setattr(labelled, "learn", scored)
    actual = findings(pair, "transferability", encoder="bert", other="aws-service", seeds=2)
    fits(actual, "transferability")
    # Two bases; four groups: 4 series with 4 values of n; two seeds.
    assert len(asked) == 2 * (2 + 4 * 4) and [of[0] for of in asked[:2]] == ["aws-service", "aws-type"]
    assert {of[0] for of in asked if of[2]} == {"aws-type"}
    scores, changes = actual.numbers.values()
    means = {(series, row["n"]): row[series]["mean"] for row in scores for series in ("BnB", "BnB+", "AnB", "AnB+")}
    assert [means[series, 0] for series in ("BnB", "AnB+")] == pytest.approx([0.51, 0.51]), "n = 0 is base B"
    assert means["BnB", 2] == pytest.approx(0.31) and means["AnB+", 1] == pytest.approx(0.52)
    by_series = {(row["series"], row["n"]): row["minus B"]["mean"] for row in changes}
    assert by_series["AnB", 4] == pytest.approx(-0.79) and by_series["BnB", 4] == pytest.approx(-0.4), "paired by seed"
    assert actual.chapter.tables[0].columns == ["n", "BnB", "BnB+", "AnB", "AnB+"] and len(scores) == 5
    assert "100 labels a class" in actual.chapter.text[0]
    with pytest.raises(ConfigError, match="--other: needs a task of data.tasks other than aws-type"):
        findings(pair, "transferability", encoder="bert", other="aws-type")


def test_the_study_with_training(pair):
    actual = findings(pair, "transferability", encoder="word2vec", other="aws-service", seeds=1, epochs=1, budget=2)
    scores, _ = actual.numbers.values()
    assert len(scores) == 2 and all(0 <= row["AnB"]["mean"] <= 1 for row in scores)
    # A single seed has no interval.
    assert not any("[" in cell for row in actual.chapter.tables[0].rows for cell in row)
    assert not any("[" in sentence for sentence in actual.chapter.lead)
    assert set(pair.read) == {"examples/aws-type", "examples/aws-service", "encoder/word2vec/adapted"}
