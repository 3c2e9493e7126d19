"""Words beside the encoder: the served model to the last bit, and its score."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.core.artifacts import read_manifest
from components.data.tasks.examples import read_split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import best_score, read_answers
from components.learners.finetuning import words as finetuning_words
from components.learners.finetuning.stage import at_chosen, finetune
from components.learners.finetuning.words import WEIGHTS
from components.learners.loading import load_model
from components.learners.select import Choice
from components.learners.task_models.classifier import TextClassifier
from components.learners.task_models.words_part import joint


@pytest.mark.parametrize("score", [0.7, 0.9])
def test_a_run_that_chose_on_dev_has_the_score_of_the_combination(score):
    """Even if another evaluation of the encoder alone was better."""
    record = {"score": "f1", "curve": [{"f1": 0.8}, {"f1": 0.85}, {"f1": 0.84}]}
    assert best_score(record | at_chosen(record, {"f1": score})) == score
    assert best_score(record | {"chosen": 0} | at_chosen(record | {"chosen": 0}, {"f1": score})) == score


def test_a_stored_joint_model_multiplies_the_odds():
    """Of an earlier version: one regression on features of the encoder and on words."""
    of_encoder, logits = np.log([[0.2, 0.3, 0.5]]), np.asarray([[1.0, -2.0, 0.5]])
    probabilities = np.exp(of_encoder).astype(np.float32)
    expected = np.exp(of_encoder + logits) / np.exp(of_encoder + logits).sum()
    np.testing.assert_allclose(joint(probabilities, logits, exclusive=True), expected, rtol=1e-6)
    odds = probabilities / (1 - probabilities) * np.exp(logits)
    np.testing.assert_allclose(joint(probabilities, logits, exclusive=False), odds / (1 + odds), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "selection"), [("classification", "budget"), ("multilabel", "dev"), ("pair", "budget")]
)
def test_the_served_model_is_the_scored_one_to_the_last_bit(kind, selection, make_job, in_process, monkeypatch):
    job = make_job("ulmfit", kind, words="auto", source={"selection": selection})

    def forced(rows, candidates):
        index = 0 if len(candidates) < len(WEIGHTS) else 5
        return Choice(index, {}, list(candidates[index]))

    monkeypatch.setattr(finetuning_words, "choose_of", forced)
    output = finetune(job)
    (record,) = json.loads((output / "runs.json").read_text())
    assert record["words"]["how"] == "mean" and record["words"]["system"].startswith("tfidf")
    rows = [row for row in pq.read_table(output / "runs.parquet").to_pylist() if row["split"] != "test"]
    judged = read_split(job.examples, "dev" if selection == "dev" else "train")
    facts = json.loads((job.examples / "labels.json").read_text())
    scoring = scoring_for(kind, facts)
    score = scoring.score(judged.fields, judged.targets, [np.asarray(row["answer"], np.float32) for row in rows])
    assert score[scoring.main] == best_score(record)

    classifier = load_model(output / "classifier")
    assert isinstance(classifier, TextClassifier)
    assert classifier.words is not None
    test = read_split(job.examples, "test").fields
    stored = [row["answer"] for row in pq.read_table(output / "runs.parquet").to_pylist() if row["split"] == "test"]
    for size in (1, len(test)):
        np.testing.assert_array_equal(classifier.answer(test, size), stored)
    files = read_manifest(output / "classifier").files
    assert {"words/words.json", "words/words.safetensors"} <= files.keys()
    alone = finetune(make_job("ulmfit", kind, name="alone", source={"selection": selection}))
    others = [row["answer"] for row in pq.read_table(alone / "runs.parquet").to_pylist() if row["split"] == "test"]
    assert others != stored


def test_where_no_words_are_chosen_the_model_is_the_encoder_alone(make_job, in_process, monkeypatch):
    source = {"selection": "budget"}
    alone = finetune(make_job("ulmfit", "classification", name="alone", source=source))
    monkeypatch.setattr(finetuning_words, "choose_of", lambda rows, actual: Choice(0, {}, list(actual[0])))
    none = finetune(make_job("ulmfit", "classification", name="none", words="auto", source=source))
    assert not (none / "classifier" / "words").exists()
    assert read_answers(none, "test").values() and str(read_answers(none, "test")) == str(read_answers(alone, "test"))
    # A kind without words models is left as it is.
    tags = make_job("ulmfit", "tagging", name="tags", words="auto", source=source)
    assert not (finetune(tags) / "classifier" / "words").exists()
