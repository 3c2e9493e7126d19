"""`selection: budget`: all choices are made by cross-validation within the label budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from components.core.errors import ConfigError
from components.data.tasks.budgets import folds_of
from components.data.tasks.examples import read_split
from components.learners import select
from components.learners.finetuning import execution, runs
from components.learners.finetuning.stage import finetune
from tests.finetuning.interruption import BUDGET, records_of


def test_dev_is_never_read(make_job, in_process, monkeypatch):
    def refuses(directory, split, **named):
        assert split != "dev"
        return read_split(directory, split, **named)

    for module in ("base", "finetuning.fit", "finetuning.stage"):
        monkeypatch.setattr(f"components.learners.{module}.read_split", refuses)
    finetune(make_job("ulmfit", "classification", source=BUDGET, frozen=True))


def test_each_row_is_predicted_by_a_run_that_has_not_learned_from_it(make_job, in_process, monkeypatch):
    seen: list[tuple[int | None, list[int], list[int]]] = []
    real = runs.Member.__init__

    def noted(self, fit, encoder, tokenizer):
        real(self, fit, encoder, tokenizer)
        rows = self.rows
        seen.append((fit.fold, list(rows.learned), [] if rows.held is None else list(rows.drawn[rows.held])))

    asked, fitted = list[Any](), execution.calibrated
    monkeypatch.setattr(execution, "calibrated", lambda *rows, folds: asked.append(folds) or fitted(*rows, folds=folds))
    monkeypatch.setattr(runs.Member, "__init__", noted)
    job = make_job("bert", "classification", source=BUDGET | {"folds": 3})
    finetune(job)
    train = read_split(job.examples, "train")
    folds, rows = folds_of(train.labels, 3, seed=0), list(range(len(train)))
    assert {fold for fold, *_ in seen} == {0, 1, 2, None}
    # Nor does its temperature depend on it.
    np.testing.assert_equal(asked, [folds])
    for fold, inside, outside in seen:
        assert outside == ([] if fold is None else list(np.flatnonzero(folds == fold)))
        assert sorted(inside + outside) == rows


def test_the_record_has_the_choices_without_each_fold(make_job, in_process, monkeypatch):
    real, chosen = select.choose_of, []

    def noted(*given, **named):
        by_fold, answers = real(*given, **named)
        chosen.append(by_fold)
        return by_fold, answers

    monkeypatch.setattr(select, "choose_of", noted)
    job = make_job("bert", "classification", source=BUDGET, head_penalties=[1.0, 1e9], epochs=4, evaluations=4)
    (record,) = records_of(finetune(job))
    heads, points = chosen
    assert record["by_fold"] == [
        {"way": "finetune", "stop": points[fold], "penalty": heads[fold].penalty} for fold in range(2)
    ]


@pytest.mark.parametrize("stop", [0, 1])
def test_the_final_run_ends_at_the_chosen_point_of_the_same_schedule(stop, make_job, in_process, monkeypatch, watch):
    steps, real = watch(lambda state, report: report.step), execution._point

    def chosen(*arguments):
        actual = real(*arguments)
        return replace(actual, fit=replace(actual.fit, stop=stop))

    monkeypatch.setattr(execution, "_point", chosen)
    job = make_job("bert", "classification", source=BUDGET, epochs=4, evaluations=2, unfreezing="none")
    (record,) = records_of(finetune(job))
    # Two folds of 6 rows with 2 steps an epoch; 12 rows with 3.
    assert steps == [*range(1, 9), *range(1, 9), *range(1, 6 * stop + 1)]
    assert record["best_step"] == 6 * stop


def test_a_single_row_is_refused(make_job, in_process):
    job = make_job("bert", "tagging", source=BUDGET | {"budgets": [1]})
    with pytest.raises(ConfigError, match="budgets: 1 training row.*too few for a cross-validation"):
        finetune(job)


def chosen_of(index: int):
    """Chooses the candidate with this index everywhere."""

    def choose(rows, candidates, **named):
        option = list(candidates)[index]
        return dict.fromkeys([None, *rows.folds.tolist()], option), list(candidates[option])

    return choose


@pytest.mark.parametrize(("method", "first"), [("contrastive", -1), ("finetune", 0)])
@pytest.mark.parametrize("index", [0, -1])
def test_contrastive_training_prefers_the_end_of_its_schedule_and_fine_tuning_the_start(
    index, method, first, make_job, in_process, monkeypatch
):
    monkeypatch.setattr(select, "choose_of", chosen_of(index))
    (record,) = records_of(finetune(make_job("bert", "classification", source=BUDGET, method=method, evaluations=3)))
    points = range(len(record["curve"]))
    assert record["chosen"] == points[first if index == 0 else -1 - first]
    assert record["best_step"] == record["curve"][record["chosen"]]["step"]
