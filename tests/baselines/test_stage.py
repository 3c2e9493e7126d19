"""The stage `baseline`: its choices within the label budget or on dev, its files, its served model."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.core.artifacts import read_manifest
from components.core.clock import OutOfTimeError, until
from components.core.errors import ConfigError
from components.data.ingestion.unlabelled import write_texts
from components.data.tasks.budgets import sample_rows
from components.data.tasks.data import Answer, Fields, Split, mean_answers
from components.data.tasks.examples import ExamplesJob, examples, read_facts, read_split, strata_of
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import OUT_OF_FOLD, best_score, read_answers
from components.learners import base, select
from components.learners.base import Candidate, Rows
from components.learners.baselines import stage
from components.learners.baselines.stage import BaselineJob, baseline
from components.learners.select import choose_of, predict
from components.learners.words import self_training
from components.learners.words.classifier import WordsPart, load_words
from components.learners.words.systems import BESIDE, LATENT, SYSTEMS
from components.settings.tasks import TaskSource
from tests.example_task import ROWS, rows, write_jsonl

LABELS = ["a", "b"]


@dataclass(frozen=True)
class Lookup:
    """Knows the labels of its rows, and answers `other` to the rest."""

    labels: dict[str, int]
    other: int

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        return [np.eye(2, dtype=np.float32)[self.labels.get(text, self.other)] for (text,) in rows]


def split(*labels: int, name: str = "t") -> Split:
    fields: list[Fields] = [(f"{name}{number}",) for number in range(len(labels))]
    return Split(fields, [np.asarray([label], dtype=np.float64) for label in labels], [None] * len(labels))


def lookups(training: Rows) -> list[Candidate]:
    pairs = zip(training.labelled.fields, training.labelled.labels, strict=True)
    learned = {text: int(label) for (text,), label in pairs}
    return [Candidate.of(Lookup(learned, other), {"other": other, "rows": len(learned)}) for other in (0, 1)]


def data(train: Split, dev: Split, *, folds: list[int] | None = None) -> Rows:
    chosen = None if folds is None else np.asarray(folds)
    scoring = scoring_for("classification", LABELS)
    return Rows(train, np.arange(len(train)), dev, split(0, name="test"), LABELS, scoring, chosen)


def test_dev_or_the_rows_of_the_budget_choose():
    dev = split(0, 0, 0, 1, name="dev")
    on_dev = predict(lookups, data(split(0, 1, 1, 1), dev))
    assert on_dev.record == {"other": 0, "rows": 4} and set(on_dev.answers) == {"dev", "test"}
    crossed = predict(lookups, data(split(*[0] * 6, *[1] * 30), dev, folds=[0, 1] * 18))
    # Each row is answered by a model that knows the other fold only.
    assert crossed.record == {"other": 1, "rows": 36} and set(crossed.answers) == {OUT_OF_FOLD, "test"}
    assert [answer.argmax() for answer in crossed.answers[OUT_OF_FOLD]] == [1] * 36
    assert crossed.scores["accuracy"] == pytest.approx(30 / 36)
    assert crossed.answers["test"][0].argmax() == 1
    assert isinstance(crossed.model, Lookup) and len(crossed.model.labels) == 36, "fitted on all rows"
    tie = predict(lookups, data(split(0, 1), split(0), folds=[0, 1]))
    assert tie.record["other"] == 0, "at a tie the first candidate"


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
    assert actual.record["other"] == 0, "a tie on the first fold"
    assert fitted == [(2, 0), (2, 1), (2, 0), (4, 0)]
    assert [answer.argmax() for answer in actual.answers[OUT_OF_FOLD]] == [0, 0, 0, 0]
    assert actual.scores["accuracy"] == 0.25, "the score is that of all rows"


def made(folder: Path, kind: str = "classification", *, sizes: Sequence[int] = (12, 6, 8), **keys: Any) -> Path:
    """The examples of a task with so many rows of each class in train, dev and test."""
    for name, count, offset in zip(("train", "dev", "test"), sizes, (0, 100, 200), strict=True):
        write_jsonl(folder / "task" / f"{name}.jsonl", [ROWS[kind](row) for row in rows(count, offset=offset)])
    source = TaskSource(**{"path": str(folder / "task"), "kind": kind, "selection": "budget", "seeds": [0, 1]} | keys)
    return examples(ExamplesJob(task="things", source=source, output=folder / "examples"))


@pytest.fixture
def crossed(tmp_path: Path) -> Path:
    return made(tmp_path / "crossed", budgets=[2, 4], folds=3)


def learned(examples: Path, name: str = "baselines", **more: Any) -> tuple[Path, list[dict[str, Any]]]:
    """The output of the stage, and its records."""
    output = baseline(BaselineJob(examples=examples, output=examples.parent / name, **more))
    return output, json.loads((output / "runs.json").read_text())


def test_the_files_of_a_cross_validation_and_the_served_average(crossed):
    output, records = learned(crossed)
    systems = ["tfidf-words-characters", "tfidf-words", "tfidf-words-pairs", "latent-words", "most-frequent"]
    keys = [(record["system"], record["budget"], record["seed"]) for record in records]
    assert keys == [(name, budget, seed) for budget in (2, 4) for seed in (0, 1) for name in systems]
    assert {record["family"] for record in records} == {"baseline"}
    by_key = dict(zip(keys, records, strict=True))
    pairs, single = (by_key[name, 4, 0]["vocabulary"] for name in ("tfidf-words-pairs", "tfidf-words"))
    assert pairs > single > 0
    table = pq.read_table(output / "runs.parquet")
    assert set(table.column("split").to_pylist()) == {OUT_OF_FOLD, "test"}, "dev is not read"
    facts, train, test = read_facts(crossed), read_split(crossed, "train"), read_split(crossed, "test").fields
    scoring = scoring_for(facts.kind, facts.labels)
    actual, answers = (read_answers(output, name) for name in (OUT_OF_FOLD, "test"))
    assert actual.keys() == set(keys)
    for (system, budget, seed), given in actual.items():
        held = train.take(sample_rows(strata_of(train, facts.kind), budget, seed=seed)[0])
        record = by_key[system, budget, seed]
        assert len(given) == len(held) == record["rows"]
        assert scoring.score(held.fields, held.targets, given)[scoring.main] == best_score(record)
        assert record["folds"] == min(3, budget), "a class of two rows has two folds"
    chosen = []
    for budget, seed in itertools.product(facts.budgets, facts.seeds):
        candidates = {number: actual[name, budget, seed] for number, name in enumerate(systems[:-1])}
        number = choose_of(Rows.of(crossed, budget, seed), candidates)[0][None]
        part = WordsPart.read(output / BESIDE / f"{budget}.{seed}", {"how": "mean", "weight": 1}, labels=facts.labels)
        expected = answers[systems[number], budget, seed]
        np.testing.assert_array_equal(part.model.answers(test), expected)
        chosen += [number] * (budget == 4)
    stored = read_manifest(output / "classifier").facts
    assert stored["system"] == systems[min(chosen)], "of two seeds that differ, the simpler system"
    assert stored["systems"] == systems[:-1]
    assert (stored["budget"], stored["task"], stored["seeds"]) == (4, "things", [0, 1])
    expected = mean_answers([answers[stored["system"], 4, seed] for seed in stored["seeds"]])
    np.testing.assert_array_equal(np.stack(load_words(output / "classifier").answer(test)), np.stack(expected))


def test_a_budget_of_one_row_is_refused(tmp_path):
    task = made(tmp_path, "similarity", sizes=(2, 2, 2), budgets=[1], seeds=[0])
    with pytest.raises(ConfigError, match=r"data\.tasks\.things\.budgets: 1 training row.*too few.*selection: dev"):
        learned(task)


def test_seeds_with_the_same_rows_are_learned_once(task, monkeypatch):
    rows = read_split(task, "train").fields
    calls: list[int] = []
    monkeypatch.setattr(base, "sample_rows", lambda *_, **__: (np.arange(len(rows)), {}))
    monkeypatch.setattr(base, "largest_draw", lambda *_, **__: np.arange(len(rows)))
    run = stage._run
    monkeypatch.setattr(stage, "_run", lambda *arguments: calls.append(1) or run(*arguments))
    output, records = learned(task)
    assert min(best_score(record) for record in records if record["system"] == "tfidf-words") > 0.8
    # As all rows have labels, texts without labels are not learned from.
    assert len(records) == 2 * 2 * 4 and len(calls) == 2 * 4
    first, second = ([r for r in records if (r["budget"], r["seed"]) == (4, seed)] for seed in (0, 1))
    assert [record | {"seed": 1} for record in first] == second
    assert read_manifest(output / "classifier").facts["seeds"] == [0, 1]
    frequent = pq.read_table(output / "runs.parquet", filters=[("system", "=", "most-frequent")]).to_pylist()
    np.testing.assert_allclose([row["answer"] for row in frequent], np.full((4 * (18 + 24), 3), 1 / 3), rtol=1e-6)


def test_a_system_that_the_last_draw_has_no_time_for_is_not_stored(crossed, monkeypatch):
    calls, run = itertools.count(), stage._run

    def limited(system, rows):
        if next(calls) > 5 + 5 + 5:  # the first system of the last draw
            raise OutOfTimeError
        return run(system, rows)

    monkeypatch.setattr(stage, "_run", limited)
    output, records = learned(crossed)
    assert len(records) == 16
    assert read_manifest(output / "classifier").facts["systems"] == ["tfidf-words-characters"]


def test_a_limit_of_time_holds_from_the_first_model_of_the_largest_budget_on(crossed):
    with until(time.monotonic()):
        _, records = learned(crossed)
    assert Counter(record["budget"] for record in records) == {2: 10, 4: 1}


def test_texts_without_labels_change_latent_vectors_and_copies_of_train_do_not(task, tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "baselines_of", lambda *_, **__: {LATENT: SYSTEMS["classification"][LATENT]})

    def scores(name, texts):
        free = write_texts(tmp_path / f"{name}-texts", [(text,) for text in texts], examples=task, most=100)
        output, _ = learned(task, name, unlabelled=free)
        return list(pq.read_table(output / "runs.parquet").column("answer").to_pylist())

    train = [text for (text,) in read_split(task, "train").fields]
    none, copies = scores("none", []), scores("copies", train)
    assert copies == none
    assert scores("others", [" ".join(pair) for pair in itertools.pairwise(train)]) != none


def test_latent_vectors_are_fitted_once_per_seed_on_texts_of_no_drawn_row(task, monkeypatch):
    """Not once per budget and fold; so no fold has read its rows."""
    fitted: list[set[str]] = []
    features = self_training.LatentFeatures
    fit = features.fit
    monkeypatch.setattr(features, "fit", lambda texts, **more: fitted.append(set(texts)) or fit(texts, **more))
    self_training._fitted.cache_clear()
    learned(task)
    facts, train = read_facts(task), read_split(task, "train")
    assert len(facts.budgets) == len(facts.seeds) == len(fitted) == 2
    for seed, texts in zip(facts.seeds, fitted, strict=True):
        drawn = set(sample_rows(train.labels, max(facts.budgets), seed=seed)[0].tolist())
        assert texts == {text for row, (text,) in enumerate(train.fields) if row not in drawn}


def test_texts_without_words_are_classified_by_characters(tmp_path):
    """One character a document, none of them in a word."""
    for name, texts in (("train", ":;:;"), ("dev", ":;"), ("test", ";:")):
        rows = [{"text": text * (2 + index), "label": text} for index, text in enumerate(texts)]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    source = TaskSource(path=str(tmp_path), budgets=["all"], seeds=[0], overlap="report")
    output, _ = learned(examples(ExamplesJob(task="marks", source=source, output=tmp_path / "examples")))
    answers = read_answers(output, "test")["tfidf-words", -1, 0]
    assert [int(answer.argmax()) for answer in answers] == [1, 0]
