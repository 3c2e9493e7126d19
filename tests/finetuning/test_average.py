"""The average over seeds has a temperature and thresholds of its own, from rows that no member has learned from."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.artifacts import json_of, read_manifest
from components.data.tasks.calibration import calibrated, temperature_for, tempered
from components.data.tasks.data import Split, mean_answers
from components.data.tasks.examples import read_facts, read_split, run_folds
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import OUT_OF_FOLD, read_answers, read_averages
from components.learners.abstention import FACT, thresholds_of
from components.learners.finetuning.stage import finetune, fits_of
from components.learners.task_models.classifier import load_classifier, load_members

pytestmark = pytest.mark.usefixtures("in_process", "few_pairs")
SEEDS: dict[str, Any] = {"budgets": [3], "seeds": [0, 1, 2], "selection": "budget", "folds": 2}


def config(output: Path) -> dict[str, Any]:
    return dict(json_of(output / "classifier" / "config.json"))


@pytest.mark.parametrize("method", ["features", "finetune"])
def test_its_temperature_is_fitted_on_rows_that_no_member_has_learned_from(method, make_job):
    job = make_job("bert", "classification", source=SEEDS, method=method, head_penalties=[0.1], head_steps=50)
    output = finetune(job)
    facts, train, test = read_facts(job.examples), read_split(job.examples, "train"), read_split(job.examples, "test")
    scoring, members = scoring_for(facts.kind, facts.labels), load_members(output / "classifier")
    learned = [fit.rows().learned.tolist() for fit in sorted(fits_of(job, job.settings), key=attrgetter("seed"))]
    kept = sorted(set().union(*learned))
    assert len(kept) > len(learned[0]), "the seeds draw different rows"
    by_member = []
    for seed, (member, own) in enumerate(zip(members, learned, strict=True)):
        held = dict(zip(own, read_answers(output, OUT_OF_FOLD)[job.system, 3, seed], strict=True))
        by_member.append([held[row] if row in held else member.answer([train.fields[row]])[0] for row in kept])
    targets = [train.targets[row] for row in kept]
    temperature = temperature_for(scoring, targets, mean_answers(by_member))
    assert config(output)["temperature"] == pytest.approx(temperature, rel=1e-3) and abs(temperature - 1) > 0.02
    folds = run_folds(facts, train, np.asarray(kept), seed=0)
    _, held_out = calibrated(scoring, targets, mean_answers(by_member), folds=folds)
    thresholds = thresholds_of([(targets, held_out)])
    stored = read_manifest(output / "classifier", kind="classifier").facts[FACT]
    np.testing.assert_allclose(stored, thresholds, rtol=1e-3)
    # What is evaluated is what is served.
    average = load_classifier(output / "classifier")
    expected = tempered(
        mean_answers([member.answer(test.fields) for member in members]), average.temperature, exclusive=True
    )
    evaluated = read_averages(output, averages=True)[job.system].answers
    for answer, given, of_table in zip(average.answer(test.fields), expected, evaluated, strict=True):
        np.testing.assert_array_equal(answer, given)
        np.testing.assert_array_equal(answer, np.asarray(of_table, dtype=np.float32))


def test_rows_that_belong_to_what_a_member_has_read_are_left_out(make_job, monkeypatch):
    job = make_job("bert", "classification", source=SEEDS, method="features", head_penalties=[0.1], head_steps=50)
    train = read_split(job.examples, "train")
    learned = [fit.rows().learned.tolist() for fit in fits_of(job, job.settings)]
    common = set(learned[0]).intersection(*learned[1:])
    assert 1 < len(common) < len(learned[0])
    # All rows belong together: only those that each member has predicted out of fold are left.
    asked: list[int] = []

    def counted(scoring: Any, targets: Any, answers: Any, *, folds: Any) -> Any:
        asked.append(len(targets))
        return calibrated(scoring, targets, answers, folds=folds)

    monkeypatch.setattr("components.learners.finetuning.stage.calibrated", counted)
    everything, real = frozenset(train.digests), Split.belonging
    monkeypatch.setattr(
        Split, "belonging", lambda self, rows: everything if len(rows) == len(learned[0]) else real(self, rows)
    )
    finetune(job)
    assert asked[-1] == len(common)


def test_a_single_model_and_kinds_without_probabilities_have_none(make_job):
    single = finetune(make_job("bert", "classification", name="one", source=SEEDS | {"seeds": [0]}, method="features"))
    assert "members" not in config(single)
    source = SEEDS | {"budgets": [6]}
    numbers = finetune(make_job("bert", "regression", name="numbers", source=source, method="features"))
    assert "temperature" not in config(numbers)
