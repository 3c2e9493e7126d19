"""Contract of everything that learns a task: words models and other baselines, frozen encoders and trained ones.

Every entry of `BASELINES` and `WAYS` is tested with every kind of task that it suits; distillation, which needs
teachers, in `test_distil.py`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import nn

from components.core.artifacts import read_manifest
from components.data.tasks.examples import read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import OUT_OF_FOLD, read_answers, read_averages
from components.learners.baselines import baselines_of, stage
from components.learners.baselines.stage import BaselineJob, baseline
from components.learners.finetuning.stage import FinetuneJob, finetune
from components.learners.loading import load_model
from components.learners.task_models.classifier import load_classifier
from components.learners.task_models.kinds import TASKS
from components.learners.ways import WAYS
from components.learners.ways.base import Way
from components.learners.words.classifier import FORM, form_of
from components.models.encoder import load_encoder
from components.settings.contrastive import ContrastiveSettings
from components.settings.finetune import Way as WayName
from components.training.optim import ParameterGroup, decayed
from tests.finetuning.interruption import FAST, learned, records_of

BUDGETS = {"classification": 3, "pair": 3}


def learners() -> Iterator[tuple[str, str]]:
    """Kind of task, and name of a learner."""
    for kind in sorted(TASKS):
        yield from ((kind, name) for name in baselines_of(kind, language="en", which="all"))
        ways = (name for name, way in WAYS.items() if not way.has_teachers and way.refuse(TASKS[kind]) is None)
        yield from ((kind, name) for name in ways)


@pytest.fixture
def learn(make_task, make_job, in_process, monkeypatch) -> Callable[[str, str, str], Path]:
    """learn(kind, learner, name of the output) -> the output of its stage."""

    def run(kind: str, learner: str, name: str) -> Path:
        source = {"budgets": [BUDGETS.get(kind, 9)], "seeds": [0, 1], "selection": "budget", "folds": 2}
        if learner in WAYS:
            few = {"contrastive": ContrastiveSettings(epochs=1)} if learner == "contrastive" else {}
            return finetune(make_job("bert", kind, name=name, source=source, method=learner, **few))
        systems = {learner: baselines_of(kind, language="en", which="all")[learner]}
        monkeypatch.setattr(stage, "baselines_of", lambda *given, **named: systems)
        monkeypatch.setattr(stage, "suited", lambda systems, data: systems)
        examples = make_task(kind, **source)
        return baseline(BaselineJob(examples=examples, output=examples.parent / name))

    return run


@pytest.mark.parametrize(("kind", "learner"), sorted(learners()))
def test_it_learns_within_its_budget_and_is_served_as_scored(kind, learner, learn, tmp_path):
    output = learn(kind, learner, "first")
    examples = tmp_path / f"examples-{kind}"
    facts, train, test = read_facts(examples), read_split(examples, "train"), read_split(examples, "test")
    scoring, records = scoring_for(kind, facts.labels), records_of(output)
    assert [record["seed"] for record in records] == [0, 1]
    answers, folds = read_answers(output, "test"), read_answers(output, OUT_OF_FOLD)
    for record in records:
        key = record["system"], record["budget"], record["seed"]
        assert record["score"] == scoring.main and np.isfinite(record["curve"][0][scoring.main])
        assert len(answers[key]) == len(test) and len(folds[key]) == BUDGETS.get(kind, 3) * 3 <= len(train)
        assert all(np.isfinite(answer).all() for answer in [*answers[key], *folds[key]])
    if learner not in WAYS:  # which an interrupted run repeats
        again = learn(kind, learner, "second")
        for split in ("test", OUT_OF_FOLD):
            np.testing.assert_equal(read_answers(again, split), read_answers(output, split))
    if (output / "classifier").is_dir():
        served = load_model(output / "classifier")
        given = served.answer(test.fields)
        system, *_ = next(iter(answers))
        expected = read_averages(output, averages=scoring.averages)[system].answers
        np.testing.assert_equal(given, list(expected))
        np.testing.assert_equal([served.answer([row])[0] for row in test.fields], given)
        # Of words models whose answers have no mean, the first.
        several = scoring.averages or form_of(output / "classifier") != FORM
        assert read_manifest(output / "classifier").facts["seeds"] == ([0, 1] if several else [0])


def test_the_table_has_the_names_of_the_settings():
    assert set(WAYS) == set(get_args(WayName))


class Biases(Way):
    """Training of the biases alone (Zaken et al. 2022, "BitFit"), and of the head."""

    def groups(self, models, settings, *, unfreeze_every: int) -> list[ParameterGroup]:
        (model,) = models
        named: list[tuple[str, nn.Parameter]] = list(model.named_parameters())
        return decayed(value for name, value in named if name.startswith("head.") or name.endswith("bias"))


def test_a_new_way_is_one_class(make_job, in_process, monkeypatch):
    monkeypatch.setitem(WAYS, "finetune", Biases())
    job: FinetuneJob = make_job("bert", "classification", evaluations=3, epochs=20, head_steps=0, training=FAST)
    assert learned(job)["steps"] == 60
    before = load_encoder(job.encoder).model.state_dict()
    after = load_classifier(job.output / "classifier").encoder.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(name.endswith("bias") for name in changed)
