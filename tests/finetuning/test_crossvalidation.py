"""`selection: budget`: all choices are made by cross-validation within the label budget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.errors import ConfigError
from components.data.tasks.budgets import ALL, folds_of
from components.data.tasks.examples import read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import OUT_OF_FOLD, best_score, read_answers
from components.learners.finetuning import execution, runs
from components.learners.finetuning.stage import FinetuneJob, finetune
from components.learners.select import Choice
from components.learners.task_models.classifier import load_classifier

BUDGET: dict[str, Any] = {"selection": "budget", "folds": 2}


def check(job: FinetuneJob, output: Path) -> None:
    """The record, the answers and the classifier agree."""
    facts, train, test = read_facts(job.examples), read_split(job.examples, "train"), read_split(job.examples, "test")
    scoring = scoring_for(facts.kind, facts.labels)
    (record,) = json.loads((output / "runs.json").read_text())
    assert record["folds"] == 2 and record["rows"] == len(train) and record["score"] == scoring.main
    key = (job.system, ALL, 0)
    answers = read_answers(output, OUT_OF_FOLD)[key]
    chosen = record["curve"][record["chosen"]]
    actual = scoring.score(train.fields, train.targets, answers)[scoring.main]
    assert actual == pytest.approx(record["selected"][scoring.main], abs=1e-5) == pytest.approx(best_score(record))
    assert record["best_step"] == chosen["step"]
    assert not read_answers(output, "dev")
    served = load_classifier(output / "classifier").answer(test.fields)
    for answer, expected in zip(served, read_answers(output, "test")[key], strict=True):
        np.testing.assert_array_equal(answer, np.asarray(expected, dtype=np.float32))
    assert not list(Path(job.cluster.storage).rglob("*.safetensors")), "what is finished needs no checkpoints"


def test_dev_is_never_read(make_job, in_process, monkeypatch):
    def refuses(directory, split, **named):
        assert split != "dev"
        return read_split(directory, split, **named)

    for module in ("base", "finetuning.fit", "finetuning.stage"):
        monkeypatch.setattr(f"components.learners.{module}.read_split", refuses)
    finetune(make_job("ulmfit", "classification", source=BUDGET, frozen=True))


def test_each_row_is_predicted_by_a_run_that_has_not_learned_from_it(make_job, in_process, monkeypatch):
    learned: list[tuple[int | None, list[int], list[int]]] = []
    real = runs.Member.__init__

    def noted(self, fit, encoder, tokenizer):
        real(self, fit, encoder, tokenizer)
        rows = self.rows
        learned.append((fit.fold, list(rows.learned), [] if rows.held is None else list(rows.drawn[rows.held])))

    monkeypatch.setattr(runs.Member, "__init__", noted)
    job = make_job("bert", "classification", source=BUDGET | {"folds": 3})
    finetune(job)
    train = read_split(job.examples, "train")
    folds = folds_of(train.labels, 3, seed=0)
    rows = list(range(len(train)))
    assert {fold for fold, *_ in learned} == {0, 1, 2, None}
    for fold, inside, outside in learned:
        if fold is None:
            assert inside == rows and not outside
        else:
            assert outside == list(np.flatnonzero(folds == fold)) and sorted(inside + outside) == rows


def test_the_record_has_the_choices_without_each_fold(make_job, in_process, monkeypatch):
    real, chosen = execution.choose_of, []

    def noted(rows, candidates):
        chosen.append(real(rows, candidates))
        return chosen[-1]

    monkeypatch.setattr(execution, "choose_of", noted)
    job = make_job("bert", "classification", source=BUDGET, head_penalties=[1.0, 1e9], epochs=4, evaluations=4)
    (record,) = json.loads((finetune(job) / "runs.json").read_text())
    heads, points = chosen
    assert [each["way"] for each in record["by_fold"]] == [job.settings.method] * 2
    assert [each["stop"] for each in record["by_fold"]] == [points.by_fold[fold] for fold in range(2)]
    penalties = [float(name.split()[-1]) for name in record["penalties"]]
    assert [each["penalty"] for each in record["by_fold"]] == [penalties[heads.by_fold[fold]] for fold in range(2)]


@pytest.mark.parametrize("stop", [0, 1])
def test_the_final_run_ends_at_the_chosen_point_of_the_same_schedule(stop, make_job, in_process, monkeypatch):
    real = execution._point
    steps: list[int] = []

    def chosen(*arguments):
        actual = real(*arguments)
        return replace(actual, fits=(replace(actual.fit, stop=stop),))

    def counted(*arguments, **named):
        for report in real_train(*arguments, **named):
            steps.append(report.step)
            yield report

    monkeypatch.setattr(execution, "_point", chosen)
    real_train = runs.train
    job = make_job("bert", "classification", source=BUDGET, epochs=4, evaluations=2, unfreezing="none")
    monkeypatch.setattr(runs, "train", counted)
    (record,) = json.loads((finetune(job) / "runs.json").read_text())
    # Two folds of 6 rows with 2 steps an epoch; 12 rows with 3.
    assert steps == [*range(1, 9), *range(1, 9), *range(1, 6 * stop + 1)]
    assert record["best_step"] == 6 * stop


def test_a_single_row_is_refused(make_job, in_process):
    job = make_job("bert", "tagging", source=BUDGET | {"budgets": [1]})
    with pytest.raises(ConfigError, match="budgets: 1 training row.*too few for a cross-validation"):
        finetune(job)


def chosen_of(index: int):
    """Chooses the candidate with this index everywhere."""
    return lambda rows, candidates: Choice(
        range(len(candidates))[index],
        dict.fromkeys(rows.folds.tolist(), range(len(candidates))[index]),
        list(candidates[index]),
    )


@pytest.mark.parametrize(("method", "first"), [("contrastive", -1), ("finetune", 0)])
@pytest.mark.parametrize("index", [0, -1])
def test_contrastive_training_prefers_the_end_of_its_schedule_and_fine_tuning_the_start(
    index, method, first, make_job, in_process, monkeypatch
):
    monkeypatch.setattr(execution, "choose_of", chosen_of(index))
    (record,) = json.loads(
        (
            finetune(make_job("bert", "classification", source=BUDGET, method=method, evaluations=3)) / "runs.json"
        ).read_text()
    )
    points = range(len(record["curve"]))
    assert record["chosen"] == points[first if index == 0 else -1 - first]
    assert record["best_step"] == record["curve"][record["chosen"]]["step"]
