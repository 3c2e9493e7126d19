"""Words beside the encoder: weights and scales by hand, the served model to the last bit, and what is refused."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from components.core.artifacts import read_manifest
from components.data.tasks.examples import read_split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import best_score, read_answers
from components.learners.finetuning import words as finetuning_words
from components.learners.finetuning.stage import finetune
from components.learners.finetuning.words import WEIGHTS, at_chosen, of_head, of_words
from components.learners.loading import load_model
from components.learners.select import Choice
from components.learners.task_models.classifier import TextClassifier
from components.learners.task_models.words_part import joint
from components.learners.words.fits import fit_exclusive, fit_independent


@pytest.mark.parametrize("score", [0.7, 0.9])
def test_a_run_that_chose_on_dev_has_the_score_of_the_combination(score):
    """Even if another evaluation of the encoder alone was better."""
    record = {"score": "f1", "curve": [{"f1": 0.8}, {"f1": 0.85}, {"f1": 0.84}]}
    assert best_score(record | at_chosen(record, {"f1": score})) == score
    assert best_score(record | {"chosen": 0} | at_chosen(record | {"chosen": 0}, {"f1": score})) == score


def softmax(values: np.ndarray) -> np.ndarray:
    actual = np.exp(values - values.max(1, keepdims=True))
    return actual / actual.sum(1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_joint_regression_is_the_product_of_its_parts(classes):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(40, 3))
    tfidf = sparse.random(40, 9, density=0.4, format="csr", random_state=1)
    labels = np.arange(40) % classes
    whole = fit_exclusive(sparse.hstack([dense, 2.5 * tfidf], format="csr"), labels, 5, c=1.0)
    weights, biases = of_head(whole, features=3)
    of_encoder = softmax(dense @ weights.T + biases).astype(np.float32)
    words = of_words(whole, features=3, scale=2.5)
    actual = joint(of_encoder, words.logits(tfidf), exclusive=True)
    expected = whole.probabilities(sparse.hstack([dense, 2.5 * tfidf], format="csr"))
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_a_joint_regression_of_several_labels():
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(30, 3))
    tfidf = sparse.random(30, 9, density=0.4, format="csr", random_state=1)
    targets = [np.asarray([row % 2, 3] if row % 3 else [3], dtype=np.float64) for row in range(30)]
    whole = fit_independent(sparse.hstack([dense, tfidf], format="csr"), targets, 4, c=1.0)
    weights, biases = of_head(whole, features=3)
    of_encoder = (1 / (1 + np.exp(-(dense @ weights.T + biases)))).astype(np.float32)
    actual = joint(of_encoder, of_words(whole, features=3, scale=1.0).logits(tfidf), exclusive=False)
    np.testing.assert_allclose(actual, whole.probabilities(sparse.hstack([dense, tfidf], format="csr")), atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "words", "selection"),
    [
        ("classification", "joint", "budget"),
        ("multilabel", "joint", "dev"),
        ("multilabel", "mean", "budget"),
        ("pair", "mean", "dev"),
    ],
)
def test_the_served_model_is_the_scored_one_to_the_last_bit(kind, words, selection, make_job, in_process, monkeypatch):
    job = make_job("ulmfit", kind, words="auto", source={"selection": selection})

    def forced(rows, candidates):
        index = 0 if len(candidates) < len(WEIGHTS) else {"mean": 5, "joint": len(candidates) - 2}[words]
        return Choice(index, {}, list(candidates[index]))

    monkeypatch.setattr(finetuning_words, "choose_of", forced)
    output = finetune(job)
    (record,) = json.loads((output / "runs.json").read_text())
    assert record["words"]["how"] == words and record["words"]["system"].startswith("tfidf")
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
