"""Words beside the encoder: weights and scales by hand, the served model to the last bit, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from components.artifacts import read_manifest
from components.errors import ConfigError
from components.finetuning.stage import finetune
from components.finetuning.words import at_chosen, choose_weight, log_loss, of_head, of_words
from components.inference.loading import load_model
from components.task_models.classifier import TextClassifier
from components.task_models.words_part import joint, mean
from components.tasks.data import Split
from components.tasks.examples import read_split
from components.tasks.kinds import scoring_for
from components.tasks.results import best_score
from components.words.linear import fit_exclusive, fit_independent


def split(*labels: list[int]) -> Split:
    return Split([("x",)] * len(labels), [np.asarray(row, dtype=np.float64) for row in labels], [None] * len(labels))


def scored(rows: Split):
    scoring = scoring_for("classification", ["a", "b"])
    return lambda answers: scoring.score(rows.fields, rows.targets, answers)


def test_the_weight_with_the_best_score_is_chosen() -> None:
    rows = split([0], [1], [0], [1])
    # The encoder is wrong on the last row, the words on the first.
    of_encoder = np.asarray([[0.9, 0.1], [0.1, 0.9], [0.9, 0.1], [0.6, 0.4]], dtype=np.float32)
    of_words = np.asarray([[0.3, 0.7], [0.1, 0.9], [0.9, 0.1], [0.0, 1.0]], dtype=np.float32)
    weight, scores = choose_weight(of_encoder, of_words, split=rows, scores=scored(rows), main="macro_f1")
    assert scores["macro_f1"] == 1.0
    # 0.6 - 0.06 weight falls below 0.5 at the weight 0.2; the loss of the last row falls until 0.4, the usual limit.
    losses = {one: log_loss(mean(of_encoder, of_words, one), rows) for one in (0.2, 0.3, 0.4)}
    assert weight == min(losses, key=losses.__getitem__), "of equal ones that with the smallest loss"


def test_a_large_weight_needs_words_that_are_clearly_better() -> None:
    rows = split(*[[number % 2] for number in range(20)])
    right = np.eye(2, dtype=np.float32)[[number % 2 for number in range(20)]]
    wrong = 0.3 + 0.4 * right[:, ::-1]
    for better, expected in ((20, True), (12, False)):
        # The words are right on the first rows, the encoder on the others: 12 of 20 may be chance.
        first = np.arange(20)[:, None] < better
        of_words, of_encoder = np.where(first, right, 1 - right), np.where(first, wrong, right)
        weight, _ = choose_weight(
            of_encoder.astype(np.float32),
            of_words.astype(np.float32),
            split=rows,
            scores=scored(rows),
            main="macro_f1",
        )
        assert (weight > 0.4) == expected


def test_words_that_bring_nothing_have_weight_zero() -> None:
    rows = split([0], [1])
    sure, wrong = np.asarray([[0.9, 0.1], [0.1, 0.9]], dtype=np.float32), np.full((2, 2), 0.5, dtype=np.float32)
    assert choose_weight(sure, wrong, split=rows, scores=scored(rows), main="macro_f1")[0] == 0.0
    assert choose_weight(sure, sure, split=rows, scores=scored(rows), main="macro_f1")[0] == 0.0, "a tie"


@pytest.mark.parametrize("score", [0.7, 0.9])
def test_a_run_that_chose_on_dev_has_the_score_of_the_combination(score: float) -> None:
    """Even if another evaluation of the encoder alone was better."""
    record = {"score": "f1", "curve": [{"f1": 0.8}, {"f1": 0.85}, {"f1": 0.84}]}
    assert best_score(record | at_chosen(record, {"f1": score})) == score
    assert best_score(record | {"chosen": 0} | at_chosen(record | {"chosen": 0}, {"f1": score})) == score


def test_logarithmic_losses_by_hand() -> None:
    p = np.asarray([[0.8, 0.2], [0.25, 0.75]], dtype=np.float32)
    assert log_loss(p, split([0], [1])) == pytest.approx(-(np.log(0.8) + np.log(0.75)) / 2, rel=1e-6)
    several = np.asarray([[0.8, 0.6], [0.25, 0.1]], dtype=np.float32)
    expected = -(np.log(0.8) + np.log(0.6) + np.log(0.75) + np.log(0.9)) / 2
    assert log_loss(several, split([0, 1], [])) == pytest.approx(expected, rel=1e-6)


def softmax(values: np.ndarray) -> np.ndarray:
    found = np.exp(values - values.max(1, keepdims=True))
    return found / found.sum(1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_joint_regression_is_the_product_of_its_parts(classes: int) -> None:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(40, 3))
    tfidf = sparse.random(40, 9, density=0.4, format="csr", random_state=1)
    labels = np.arange(40) % classes
    whole = fit_exclusive(sparse.hstack([dense, 2.5 * tfidf], format="csr"), labels, 5, c=1.0)
    weights, biases = of_head(whole, features=3)
    of_encoder = softmax(dense @ weights.T + biases).astype(np.float32)
    words = of_words(whole, features=3, scale=2.5)
    found = joint(of_encoder, words.logits(tfidf), exclusive=True)
    expected = whole.probabilities(sparse.hstack([dense, 2.5 * tfidf], format="csr"))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_joint_regression_of_several_labels() -> None:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(30, 3))
    tfidf = sparse.random(30, 9, density=0.4, format="csr", random_state=1)
    targets = [np.asarray([row % 2, 3] if row % 3 else [3], dtype=np.float64) for row in range(30)]
    whole = fit_independent(sparse.hstack([dense, tfidf], format="csr"), targets, 4, c=1.0)
    weights, biases = of_head(whole, features=3)
    of_encoder = (1 / (1 + np.exp(-(dense @ weights.T + biases)))).astype(np.float32)
    found = joint(of_encoder, of_words(whole, features=3, scale=1.0).logits(tfidf), exclusive=False)
    np.testing.assert_allclose(found, whole.probabilities(sparse.hstack([dense, tfidf], format="csr")), atol=1e-6)


@pytest.mark.parametrize("selection", ["budget", "dev"])
@pytest.mark.parametrize("words", ["mean", "joint"])
@pytest.mark.parametrize("kind", ["classification", "multilabel", "pair"])
def test_the_served_model_is_the_scored_one_to_the_last_bit(
    kind: str, words: str, selection: str, make_job, in_process
) -> None:
    job = make_job("ulmfit", kind, words=words, source={"selection": selection})
    output = finetune(job)
    (record,) = json.loads((output / "runs.json").read_text())
    assert record["words"]["how"] == words and record["words"]["system"].startswith("tfidf")
    rows = [row for row in pq.read_table(output / "runs.parquet").to_pylist() if row["split"] != "test"]
    judged = read_split(job.examples, "dev" if selection == "dev" else "train")
    facts = json.loads((job.examples / "labels.json").read_text())
    scoring = scoring_for(kind, facts)
    score = scoring.score(judged.fields, judged.targets, [np.asarray(row["answer"], np.float32) for row in rows])
    assert score[scoring.main] == max(point[scoring.main] for point in record["curve"])

    classifier = load_model(output / "classifier")
    assert isinstance(classifier, TextClassifier)
    assert (classifier.words is not None) == (words == "joint" or record["words"]["weight"] > 0)
    test = read_split(job.examples, "test").fields
    stored = [row["answer"] for row in pq.read_table(output / "runs.parquet").to_pylist() if row["split"] == "test"]
    for size in (1, len(test)):
        np.testing.assert_array_equal(classifier.answer(test, size), stored)
    if classifier.words is not None:
        files = read_manifest(output / "classifier").files
        assert {"words/words.json", "words/words.safetensors"} <= files.keys()
        alone = finetune(make_job("ulmfit", kind, name="alone", source={"selection": selection}))
        others = [row["answer"] for row in pq.read_table(alone / "runs.parquet").to_pylist() if row["split"] == "test"]
        assert others != stored


def test_auto_is_never_worse_than_the_encoder_alone(make_job, in_process) -> None:
    source = {"selection": "budget"}

    def best(output) -> float:
        (record,) = json.loads((output / "runs.json").read_text())
        return max(point[record["score"]] for point in record["curve"])

    alone = finetune(make_job("ulmfit", "classification", name="alone", source=source))
    auto = finetune(make_job("ulmfit", "classification", words="auto", source=source))
    assert best(auto) >= best(alone)
    # A kind without words models is left as it is.
    tags = make_job("ulmfit", "tagging", name="tags", words="auto", source=source)
    assert not (finetune(tags) / "classifier" / "words").exists()


def test_what_cannot_be_combined_is_refused(make_job, in_process) -> None:
    with pytest.raises(ConfigError, match="mean needs probabilities of labels; kind tagging has none"):
        finetune(make_job("ulmfit", "tagging", words="mean"))
    with pytest.raises(ConfigError, match="joint needs a linear head"):
        finetune(make_job("ulmfit", "classification", words="joint", head_hidden=4))
