"""Hyper-parameters of baselines: on dev, or by cross-validation within the label budget."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.core.artifacts import read_manifest
from components.core.errors import ConfigError
from components.data.tasks.budgets import folds_of, sample_rows
from components.data.tasks.data import Answer, Fields, Split, mean_answers
from components.data.tasks.examples import ExamplesJob, examples, read_facts, read_split, strata_of
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import OUT_OF_FOLD, best_score, read_answers
from components.learners import select
from components.learners.base import Candidate, Rows
from components.learners.baselines.stage import BaselineJob, baseline
from components.learners.select import choose, predict
from components.learners.words.classifier import load_words
from components.learners.words.systems import SYSTEMS
from components.settings.tasks import TaskSource
from tests.example_task import ROWS, rows, write_jsonl

LABELS = ["a", "b"]


@dataclass(frozen=True)
class Lookup:
    """Knows the labels of its rows, and answers `other` to the rest."""

    known: dict[str, int]
    other: int

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        return [np.eye(2, dtype=np.float32)[self.known.get(text, self.other)] for (text,) in rows]


def split(*labels: int, name: str = "t") -> Split:
    fields: list[Fields] = [(f"{name}{number}",) for number in range(len(labels))]
    return Split(fields, [np.asarray([label], dtype=np.float64) for label in labels], [None] * len(labels))


def lookups(training: Rows) -> list[Candidate]:
    learned = {
        text: int(label) for (text,), label in zip(training.labelled.fields, training.labelled.labels, strict=True)
    }
    return [Candidate.of(Lookup(learned, other), {"other": other, "known": len(learned)}) for other in (0, 1)]


def data(train: Split, dev: Split, *, folds: list[int] | None = None) -> Rows:
    chosen = None if folds is None else np.asarray(folds)
    scoring = scoring_for("classification", LABELS)
    return Rows(train, np.arange(len(train)), dev, split(0, name="test"), LABELS, scoring, chosen)


def test_dev_or_the_rows_of_the_budget_choose():
    train, dev = split(0, 1, 1, 1), split(0, 0, 0, 1, name="dev")
    on_dev = predict(lookups, data(train, dev))
    assert on_dev.details == {"other": 0, "known": 4} and set(on_dev.answers) == {"dev", "test"}
    many = split(*[0] * 6, *[1] * 30)
    crossed = predict(lookups, data(many, dev, folds=[0, 1] * 18))
    # Each row is answered by a model that knows the other fold only.
    assert crossed.details == {"other": 1, "known": 36} and set(crossed.answers) == {OUT_OF_FOLD, "test"}
    assert [answer.argmax() for answer in crossed.answers[OUT_OF_FOLD]] == [1] * 36
    assert crossed.scores["accuracy"] == pytest.approx(30 / 36)
    assert crossed.answers["test"][0].argmax() == 1
    assert isinstance(crossed.model, Lookup) and len(crossed.model.known) == 36, "fitted on all rows"


def test_at_a_tie_the_first_candidate_is_chosen():
    assert predict(lookups, data(split(0, 1), split(0), folds=[0, 1])).details["other"] == 0


def test_of_many_rows_the_first_fold_chooses(monkeypatch):
    monkeypatch.setattr(select, "MANY_ROWS", 3)
    fitted = []

    def counted(training):
        def fit(other):
            fitted.append((len(training.labelled), other))
            return Lookup({}, other)

        return [Candidate(partial(fit, other), {"other": other}) for other in (0, 1)]

    # On the first fold, label 1 is right once of two times and 0 too; of all rows, 1 is right more often.
    actual = predict(counted, data(split(0, 1, 1, 1), split(0), folds=[0, 0, 1, 1]))
    assert actual.details["other"] == 0, "a tie on the first fold"
    assert fitted == [(2, 0), (2, 1), (2, 0), (4, 0)]
    assert [answer.argmax() for answer in actual.answers[OUT_OF_FOLD]] == [0, 0, 0, 0]
    assert actual.scores["accuracy"] == 0.25, "the score is that of all rows"


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "task"
    for name, count, offset in (("train", 12, 0), ("dev", 6, 100), ("test", 8, 200)):
        write_jsonl(folder / f"{name}.jsonl", rows(count, offset=offset))
    source = TaskSource(path=str(folder), budgets=[2, 6], seeds=[0, 1], selection="budget", folds=3)
    return examples(ExamplesJob(task="things", source=source, output=tmp_path / "examples"))


def test_the_served_model_is_the_average_of_the_best_system(task, tmp_path):
    output = baseline(BaselineJob(examples=task, output=tmp_path / "baselines"))
    records = [r for r in json.loads((output / "runs.json").read_text()) if r["budget"] == 6]
    scores: dict[str, list[float]] = {}
    for record in records:
        if record["system"] != "most-frequent":
            scores.setdefault(record["system"], []).append(best_score(record))
    facts = read_manifest(output / "classifier").facts
    assert facts["systems"] == list(scores)
    chosen = []
    answers, train = read_answers(output, OUT_OF_FOLD), read_split(task, "train")
    for seed in (0, 1):
        rows = train.take(sample_rows(strata_of(train, "classification"), 6, seed=seed)[0])
        scoring = scoring_for("classification", read_facts(task).labels)
        chosen.append(choose(scoring, rows, [answers[name, 6, seed] for name in scores]).index)
    assert facts["system"] == list(scores)[min(chosen)], "of two seeds that differ, the simpler system"
    assert facts["budget"] == 6 and facts["task"] == "things"
    assert len(facts["seeds"]) > 1
    answers = read_answers(output, "test")
    expected = mean_answers([answers[facts["system"], 6, seed] for seed in facts["seeds"]])
    served = load_words(output / "classifier").answer(read_split(task, "test").fields)
    np.testing.assert_array_equal(np.stack(served), np.stack(expected))


def test_a_budget_of_one_row_is_refused(tmp_path):
    folder = tmp_path / "task"
    for name, offset in (("train", 0), ("dev", 100), ("test", 200)):
        write_jsonl(folder / f"{name}.jsonl", [ROWS["similarity"](row) for row in rows(2, offset=offset)])
    source = TaskSource(path=str(folder), kind="similarity", budgets=[1], seeds=[0], selection="budget")
    made = examples(ExamplesJob(task="numbers", source=source, output=tmp_path / "examples"))
    with pytest.raises(ConfigError, match=r"data\.tasks\.numbers\.budgets: 1 training row.*too few.*selection: dev"):
        baseline(BaselineJob(examples=made, output=tmp_path / "out"))


def test_the_stage_stores_the_answers_out_of_fold(task, tmp_path):
    output = baseline(BaselineJob(examples=task, output=tmp_path / "baselines"))
    records = {(r["system"], r["budget"], r["seed"]): r for r in json.loads((output / "runs.json").read_text())}
    table = pq.read_table(output / "runs.parquet")
    assert set(table.column("split").to_pylist()) == {OUT_OF_FOLD, "test"}, "dev is not read"
    facts, train = read_facts(task), read_split(task, "train")
    scoring = scoring_for(facts.kind, facts.labels)
    actual = read_answers(output, OUT_OF_FOLD)
    assert actual.keys() == records.keys()
    for (system, budget, seed), answers in actual.items():
        chosen, _ = sample_rows(strata_of(train, facts.kind), budget, seed=seed)
        split = train.take(chosen)
        record = records[system, budget, seed]
        assert len(answers) == len(split) == record["rows"]
        assert scoring.score(split.fields, split.targets, answers)[scoring.main] == best_score(record)
        assert record["folds"] == min(3, budget), "a class of two rows has two folds"


def test_the_answer_to_a_row_does_not_depend_on_its_own_label(task):
    """The answers to one fold are those of a fresh run without its rows."""
    facts, train = read_facts(task), read_split(task, "train")
    scoring = scoring_for(facts.kind, facts.labels)
    folds = folds_of(strata_of(train, facts.kind), 3, seed=0)
    system = SYSTEMS["classification"]["tfidf-words"]
    data = Rows(train, np.arange(len(train)), train.take([]), train, facts.labels, scoring, folds)
    actual = predict(system, data)
    rest = train.take(np.flatnonzero(folds != 1))
    alone = system(Rows(rest, np.arange(len(rest)), rest, rest, facts.labels, scoring))
    chosen = next(candidate for candidate in alone if candidate.details["c"] == actual.details["c"])
    inside = np.flatnonzero(folds == 1)
    # They differ by the temperature, which is that of the other folds.
    both = (
        actual.answers[OUT_OF_FOLD],
        dict(zip(inside, chosen.model.answers([train.fields[r] for r in inside]), strict=True)),
    )
    first, second = (np.log(np.stack([answers[row] for row in inside])) for answers in both)
    ratios = (first[:, 1:] - first[:, :1]) / (second[:, 1:] - second[:, :1])
    np.testing.assert_allclose(ratios, ratios[0, 0], rtol=1e-4)


@pytest.mark.parametrize("kind", ROWS)
def test_every_kind_chooses_within_its_budget(kind, tmp_path):
    folder = tmp_path / "task"
    for name, count, offset in (("train", 4, 0), ("dev", 1, 100), ("test", 2, 200)):
        write_jsonl(folder / f"{name}.jsonl", [ROWS[kind](row) for row in rows(count, offset=offset)])
    source = TaskSource(path=str(folder), kind=kind, budgets=["all"], seeds=[0], selection="budget", baselines="all")
    made = examples(ExamplesJob(task="things", source=source, output=tmp_path / "examples"))
    output = baseline(BaselineJob(examples=made, output=tmp_path / "baselines"))
    actual = read_answers(output, OUT_OF_FOLD)
    assert all(len(answers) == 12 for answers in actual.values())
    served = output / "classifier"
    system = read_manifest(served).facts["system"]
    test = read_split(made, "test")
    stored = read_answers(output, "test")[system, -1, 0]
    answers = load_words(served).answer(test.fields)
    for answer, expected in zip(answers, stored, strict=True):
        np.testing.assert_array_equal(answer, np.asarray(expected, dtype=np.float32))
    # A row does not depend on the others.
    np.testing.assert_array_equal(load_words(served).answer(test.fields[1:2])[0], answers[1])
