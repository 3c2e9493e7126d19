"""Question answering in the stage: an easy task is learned, with a threshold for questions without an answer."""

import json
from dataclasses import replace

import pytest

from components.data.tasks.examples import read_split
from components.data.tasks.kinds import scoring_for
from components.learners.finetuning.stage import finetune
from components.learners.task_models.classifier import AveragedClassifier, load_classifier
from components.settings.training import Training

FAST = Training(rate=0.02, batch_size=4, precision="float32", schedule="slanted_triangular")


def test_questions_are_learned_and_the_threshold_is_stored(make_job, in_process):
    changes = {"dropout": 0.0, "head_dropout": 0.0, "discriminative": 1.0, "unfreeze_epochs": 0, "training": FAST}
    job = make_job("bert", "questions", epochs=60, evaluations=4, **changes)
    output = finetune(job)
    (record,) = json.loads((output / "runs.json").read_text())
    best = max(point["f1"] for point in record["curve"])
    assert best > 0.6
    classifier, dev = load_classifier(output / "classifier"), read_split(job.examples, "dev")
    scores = scoring_for("questions", []).score(dev.fields, dev.targets, classifier.answer(dev.fields))
    assert scores["f1"] == pytest.approx(best, abs=1e-6)
    assert float(classifier.model.head.threshold) != 0.0


@pytest.mark.parametrize("selection", ["dev", "budget"])
def test_the_average_of_question_answerers_has_a_threshold_of_its_own(selection, make_job, in_process):
    """Whose answers are the best on the rows that choices are made on; the mean of the thresholds is not."""
    keys = {"seeds": [0, 1, 2], "selection": selection, "folds": 2}
    job = make_job("bert", "questions", source=keys, epochs=12, evaluations=1, dropout=0.0)
    average = load_classifier(finetune(job) / "classifier")
    assert isinstance(average, AveragedClassifier)
    own = [float(member.model.head.threshold) for member in average.members]
    assert average.threshold == average.decoder.calibration != pytest.approx(sum(own) / 3)
    if selection == "dev":
        dev, scoring = read_split(job.examples, "dev"), scoring_for("questions", [])

        def score(threshold: float) -> float:
            given = replace(average, threshold=threshold).answer(dev.fields)
            return scoring.score(dev.fields, dev.targets, given)["f1"]

        best = score(average.threshold)
        assert best == pytest.approx(max(score(value) for value in (*own, sum(own) / 3, *range(-20, 21))))
