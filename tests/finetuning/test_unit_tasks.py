"""Question answering in the stage: an easy task is learned, with a threshold for questions without an answer."""

from dataclasses import replace

import pytest

from components.data.tasks.examples import read_split
from components.data.tasks.kinds import scoring_for
from components.learners.finetuning.stage import finetune
from components.learners.task_models.classifier import AveragedClassifier, load_classifier
from tests.finetuning.interruption import FAST, learned


def test_questions_are_learned_and_the_threshold_is_stored(make_job, in_process):
    training = FAST.model_copy(update={"rate": 0.02})
    changes = {"dropout": 0.0, "head_dropout": 0.0, "discriminative": 1.0, "unfreeze_epochs": 0, "training": training}
    job = make_job("bert", "questions", epochs=60, evaluations=4, **changes)
    # Answers at the stored threshold have the score of the best evaluation.
    assert max(point["f1"] for point in learned(job)["curve"]) > 0.6
    assert float(load_classifier(job.output / "classifier").model.head.threshold) != 0.0


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
