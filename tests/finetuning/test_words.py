"""Words beside the encoder: the served model to the last bit, and its score."""

import numpy as np
import pytest

from components.core.artifacts import read_manifest
from components.data.tasks.examples import read_split
from components.learners.finetuning import execution
from components.learners.finetuning.execution import WEIGHTS
from components.learners.finetuning.stage import finetune
from components.learners.task_models.classifier import TextClassifier, load_classifier
from components.learners.words.classifier import joint
from tests.finetuning.interruption import answers_of, learned


def test_a_stored_joint_model_multiplies_the_odds():
    """Of an earlier version: one regression on features of the encoder and on words."""
    of_encoder, logits = np.log([[0.2, 0.3, 0.5]]), np.asarray([[1.0, -2.0, 0.5]])
    probabilities = np.exp(of_encoder).astype(np.float32)
    expected = np.exp(of_encoder + logits) / np.exp(of_encoder + logits).sum()
    np.testing.assert_allclose(joint(probabilities, logits, exclusive=True), expected, rtol=1e-6)
    odds = probabilities / (1 - probabilities) * np.exp(logits)
    np.testing.assert_allclose(joint(probabilities, logits, exclusive=False), odds / (1 + odds), rtol=1e-6)


def force(monkeypatch: pytest.MonkeyPatch, weight: int) -> None:
    """The weight of the words with this index is chosen."""
    real = execution.choose_of

    def forced(rows, candidates, **named):
        if len(candidates) < len(WEIGHTS):
            return real(rows, candidates, **named)
        return {None: WEIGHTS[weight]}, list(candidates[WEIGHTS[weight]])

    monkeypatch.setattr(execution, "choose_of", forced)


@pytest.mark.parametrize(
    ("kind", "selection"), [("classification", "budget"), ("multilabel", "dev"), ("pair", "budget")]
)
def test_the_served_model_is_the_scored_one(kind, selection, make_job, in_process, monkeypatch):
    source = {"selection": selection}
    job = make_job("ulmfit", kind, words="auto", source=source)

    force(monkeypatch, 5)
    record, output = learned(job), job.output
    assert record["words"]["how"] == "mean" and record["words"]["system"].startswith("tfidf")
    classifier = load_classifier(output / "classifier")
    assert isinstance(classifier, TextClassifier) and classifier.words is not None
    stored, test = answers_of(output, "test"), read_split(job.examples, "test").fields
    # On a card the batch decides the last bit.
    np.testing.assert_allclose(classifier.answer(test, 1), stored, rtol=0, atol=1e-6)
    files = read_manifest(output / "classifier").files
    assert {"words/words.json", "words/words.safetensors"} <= files.keys()
    assert answers_of(finetune(make_job("ulmfit", kind, name="alone", source=source)), "test") != stored


def test_where_no_words_are_chosen_the_model_is_the_encoder_alone(make_job, in_process, monkeypatch):
    source = {"selection": "budget"}
    alone = finetune(make_job("ulmfit", "classification", name="alone", source=source))
    force(monkeypatch, 0)
    none = finetune(make_job("ulmfit", "classification", name="none", words="auto", source=source))
    assert not (none / "classifier" / "words").exists()
    assert answers_of(none, "test") == answers_of(alone, "test") != []
    # A kind without words models is left as it is.
    tags = make_job("ulmfit", "tagging", name="tags", words="auto", source=source)
    assert not (finetune(tags) / "classifier" / "words").exists()
