"""Baselines for classification."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pyarrow.parquet as pq

from components.data.ingestion.unlabelled import write_texts
from components.data.tasks.budgets import sample_rows
from components.data.tasks.examples import ExamplesJob, examples, read_facts, read_split
from components.data.tasks.results import read_answers
from components.learners import base
from components.learners.base import Rows
from components.learners.baselines import stage
from components.learners.baselines.stage import BaselineJob, baseline
from components.learners.select import choose_of
from components.learners.task_models.words_part import WordsPart
from components.learners.words import transductive
from components.learners.words.systems import BESIDE
from components.settings.tasks import TaskSource


def test_word_features_solve_a_word_task_and_pairs_add_features(task, tmp_path):
    output = baseline(BaselineJob(examples=task, output=tmp_path / "baselines"))
    records = {(r["system"], r["budget"], r["seed"]): r for r in json.loads((output / "runs.json").read_text())}
    words, pairs = records["tfidf-words", 4, 0], records["tfidf-words-pairs", 4, 0]
    assert pairs["vocabulary"] > words["vocabulary"] > 0
    assert words["curve"][0]["macro_f1"] > 0.8
    again = baseline(BaselineJob(examples=task, output=tmp_path / "again"))
    assert pq.read_table(again / "runs.parquet").equals(pq.read_table(output / "runs.parquet"))


def test_seeds_with_the_same_rows_are_learned_once(task, tmp_path, monkeypatch):
    rows = read_split(task, "train").fields
    calls: list[int] = []
    monkeypatch.setattr(base, "sample_rows", lambda *_, **__: (np.arange(len(rows)), {}))
    monkeypatch.setattr(base, "largest_draw", lambda *_, **__: np.arange(len(rows)))
    run = stage._run
    monkeypatch.setattr(stage, "_run", lambda *arguments: calls.append(1) or run(*arguments))
    output = baseline(BaselineJob(examples=task, output=tmp_path / "baselines"))
    records = json.loads((output / "runs.json").read_text())
    # As all rows have labels, texts without labels are not learned from.
    assert len(records) == 2 * 2 * 4 and len(calls) == 2 * 4
    first, second = ([r for r in records if (r["budget"], r["seed"]) == (4, seed)] for seed in (0, 1))
    assert [record | {"seed": 1} for record in first] == second
    manifest = json.loads((output / "classifier" / "manifest.json").read_text())
    assert manifest["facts"]["seeds"] == [0, 1]


def test_texts_without_labels_change_latent_vectors_and_copies_of_train_do_not(task, tmp_path):
    def scores(name, texts):
        free = write_texts(tmp_path / f"{name}-texts", [(text,) for text in texts], examples=task, most=100)
        output = baseline(BaselineJob(examples=task, output=tmp_path / name, unlabelled=free))
        table = pq.read_table(output / "runs.parquet", filters=[("system", "=", "latent-words")])
        return list(table.column("answer").to_pylist())

    train = [text for (text,) in read_split(task, "train").fields]
    none, copies = scores("none", []), scores("copies", train)
    assert copies == none
    assert scores("others", [" ".join(pair) for pair in itertools.pairwise(train)]) != none


def test_latent_vectors_are_fitted_once_per_seed_on_texts_of_no_drawn_row(task, tmp_path, monkeypatch):
    """Not once per budget and fold; so no fold has read its rows."""
    fitted: list[set[str]] = []
    fit = transductive.LatentSemantics.fit
    monkeypatch.setattr(
        transductive.LatentSemantics, "fit", lambda texts, **more: fitted.append(set(texts)) or fit(texts, **more)
    )
    transductive._fitted.cache_clear()
    baseline(BaselineJob(examples=task, output=tmp_path / "baselines"))
    facts, train = read_facts(task), read_split(task, "train")
    assert len(facts.budgets) == len(facts.seeds) == len(fitted) == 2
    for seed, texts in zip(facts.seeds, fitted, strict=True):
        drawn = set(sample_rows(train.labels, max(facts.budgets), seed=seed)[0].tolist())
        assert texts == {text for row, (text,) in enumerate(train.fields) if row not in drawn}


def test_the_model_that_runs_combine_with_an_encoder_is_the_chosen_one_of_the_same_draw(task, tmp_path):
    output = baseline(BaselineJob(examples=task, output=tmp_path / "baselines"))
    facts, test = read_facts(task), read_split(task, "test").fields
    for budget, seed in itertools.product(facts.budgets, facts.seeds):
        rows = Rows.of(task, budget, seed)
        judged, answers = read_answers(output, rows.judged[0]), read_answers(output, "test")
        keys = [key for key in judged if key[1:] == (budget, seed) and key[0] != "most-frequent"]
        chosen = keys[choose_of(rows, [judged[key] for key in keys]).index]
        part = WordsPart.read(output / BESIDE / f"{budget}.{seed}", {"how": "mean", "weight": 1}, labels=facts.labels)
        np.testing.assert_array_equal(part.model.answers(test), answers[chosen])


def test_texts_without_words_are_classified_by_characters(tmp_path):
    """One character a document, none of them in a word."""
    for split, texts in (("train", ":;:;"), ("dev", ":;"), ("test", ";:")):
        rows = [{"text": text * (2 + index), "label": text} for index, text in enumerate(texts)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = TaskSource(path=str(tmp_path), budgets=["all"], seeds=[0], overlap="report")
    actual = examples(ExamplesJob(task="marks", source=source, output=tmp_path / "examples"))
    output = baseline(BaselineJob(examples=actual, output=tmp_path / "out"))
    table = pq.read_table(output / "runs.parquet", filters=[("split", "=", "test"), ("system", "=", "tfidf-words")])
    assert [int(np.argmax(answer)) for answer in table.column("answer").to_pylist()] == [1, 0]


def test_baselines_write_the_output_of_finetuning(task, tmp_path):
    output = baseline(BaselineJob(examples=task, output=tmp_path / "baselines"))
    records = json.loads((output / "runs.json").read_text())
    systems = ["tfidf-words-characters", "tfidf-words", "tfidf-words-pairs", "latent-words", "most-frequent"]
    assert [(record["system"], record["budget"], record["seed"]) for record in records] == [
        (system, budget, seed) for budget in (2, 4) for seed in (0, 1) for system in systems
    ]
    assert {record["family"] for record in records} == {"baseline"}
    rows = pq.read_table(output / "runs.parquet").to_pylist()
    assert len(rows) == len(records) * (18 + 24)
    frequent = [row for row in rows if row["system"] == "most-frequent"]
    np.testing.assert_allclose([row["answer"] for row in frequent], np.full((len(frequent), 3), 1 / 3), rtol=1e-6)
