"""Regularised fine-tuning as runs: every family, kill and resume, and the candidates of cross-validation."""

from __future__ import annotations

import json

import pytest
import torch
from pydantic import ValidationError

from components.errors import ConfigError
from components.finetuning import runs
from components.finetuning.stage import FinetuneJob, finetune
from components.models import FAMILIES
from components.models.encoder import load_encoder
from components.settings.contrastive import ContrastiveSettings
from components.settings.finetune import FinetuneSettings
from components.task_models.regularisation import reinitialise
from tests.finetuning.interruption import contents, finish_interrupted, with_checkpoints

from .test_crossvalidation import BUDGET, check

WAYS = {
    "mixout": {"mixout": 0.5},
    "interpolations": {"interpolations": [0.25, 0.5]},
    "losses": {"label_smoothing": 0.1, "r_drop": 1.0, "supervised_contrastive": 0.3},
    "losses of a reader": {"label_smoothing": 0.1, "r_drop": 1.0, "reader": "bilstm", "reader_hidden": 4},
    "contrastive": {
        "method": "contrastive",
        "contrastive": ContrastiveSettings(rows=6, epochs=2, rate=0.01),
        "interpolations": [0.5],
        "mixout": 0.5,
    },
}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_learns_with_mixout_and_interpolation(family: str, make_job, in_process) -> None:
    job = make_job(family, "classification", mixout=0.5, interpolations=[0.5])
    (record,) = json.loads((finetune(job) / "runs.json").read_text())
    assert [(point["step"], point["interpolation"]) for point in record["curve"]] == [(0, 1.0), (3, 1.0), (3, 0.5)]


@pytest.mark.parametrize("way", [*sorted(WAYS), "reinitialised"])
@pytest.mark.parametrize("kind", ["classification", "multilabel"])
def test_an_interrupted_run_ends_bit_identical(way: str, kind: str, make_job, in_process, monkeypatch) -> None:
    def job(name: str) -> FinetuneJob:
        made = make_job(
            "bert", kind, name=name, epochs=2, evaluations=3, **(WAYS | {way: WAYS.get(way, {way: 1})})[way]
        )
        return with_checkpoints(made, average="ema")

    unbroken, broken = finetune(job("unbroken")), job("broken")
    assert finish_interrupted(broken, monkeypatch, at_step=3) == 2
    assert contents(broken.output) == contents(unbroken)


@pytest.mark.parametrize("way", sorted(WAYS))
def test_within_a_budget_candidates_are_chosen_by_cross_validation(way: str, make_job, in_process) -> None:
    job = make_job("bert", "classification", source=BUDGET, evaluations=2, epochs=4, **WAYS[way])
    output = finetune(job)
    (record,) = json.loads((output / "runs.json").read_text())
    shares = job.settings.interpolation_weights
    assert len(record["curve"]) == 1 + 2 * len(shares)
    if way == "interpolations":
        # The chosen point is found by step and share; the earliest of equal scores.
        assert {point.get("interpolation") for point in record["curve"]} == {1.0, 0.25, 0.5}
    else:
        check(job, output)


def test_candidates_are_numbered_by_share_then_evaluation(settings: FinetuneSettings) -> None:
    made = settings.model_copy(update={"evaluations": 2, "interpolations": [0.5]})
    assert [made.candidate(number) for number in range(5)] == [(0, 1.0), (1, 1.0), (2, 1.0), (1, 0.5), (2, 0.5)]
    assert made.candidates == 4


def test_new_layers_are_random_and_the_others_stay(make_encoder) -> None:
    encoder, fresh, before = (load_encoder(make_encoder("bert")).model for _ in range(3))
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.add_(1.0)
    reinitialise(encoder, fresh, layers=1)
    groups = list(zip(encoder.layer_groups(), before.layer_groups(), fresh.layer_groups(), strict=True))
    for own, old, _ in groups[:-1]:
        assert all(torch.equal(one, two) for one, two in zip(own, old, strict=True))
    own, _, new = groups[-1]
    assert all(torch.equal(one, two) for one, two in zip(own, new, strict=True))
    with pytest.raises(ConfigError, match="the encoder has 2 layers above the embeddings"):
        reinitialise(encoder, fresh, layers=3)


def test_the_head_is_fitted_to_the_features_of_new_layers(make_job, in_process, monkeypatch) -> None:
    heads: list[torch.Tensor] = []
    real = runs.Run._reinitialise

    def noted(self) -> None:
        heads.append(self.members[0].model.head.output.weight.detach().clone())
        real(self)
        heads.append(self.members[0].model.head.output.weight.detach().clone())

    monkeypatch.setattr(runs.Run, "_reinitialise", noted)
    finetune(make_job("bert", "classification", reinitialised=1))
    assert len(heads) == 2 and not torch.equal(*heads)


def test_settings_that_contradict_each_other_are_refused(settings: FinetuneSettings) -> None:
    for changes, message in [
        ({"reinitialised": 1, "mixout": 0.5}, "which reinitialised discards"),
        ({"method": "contrastive", "label_smoothing": 0.1}, "label_smoothing changes the task's loss"),
        ({"method": "features", "r_drop": 1.0}, "r_drop changes the task's loss"),
        ({"method": "features", "interpolations": [0.5]}, "need a method that trains the encoder"),
    ]:
        with pytest.raises(ValidationError, match=message):
            FinetuneSettings.model_validate(settings.model_dump() | changes)
