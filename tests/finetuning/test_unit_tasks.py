"""Tagging and question answering in the stage: easy tasks are learned."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from components.core.artifacts import read_manifest
from components.data.tasks.examples import ExamplesJob, examples, read_split
from components.data.tasks.kinds import scoring_for
from components.learners.finetuning.stage import FinetuneJob, finetune
from components.learners.task_models.classifier import AveragedClassifier, load_classifier
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.settings.tasks import TaskSource
from tests.example_task import FILLER, WORDS, write_jsonl

MakeJob = Callable[..., FinetuneJob]
COUNTS = {"train": 12, "dev": 8, "test": 8}


def sentence(number: int) -> tuple[list[str], list[str]]:
    """Every kind of thing is a span; two adjacent units of a kind are one span."""
    kinds = sorted(WORDS)
    kind, other = kinds[number % 3], kinds[(number // 3) % 3]
    thing, second = WORDS[kind][number % 2], WORDS[kind][2]
    words = ["the", FILLER[number % 10], thing, second, "is", FILLER[number // 10], WORDS[other][number % 3]]
    return words, ["O", "O", f"B-{kind}", f"I-{kind}", "O", "O", f"B-{other}"]


def question(number: int) -> dict[str, object]:
    """The answer is the metal of the context; every fourth context has none."""
    metal = WORDS["metal"][number % 3] if number % 4 else "horse"
    context = f"{FILLER[number % 10]} {FILLER[number // 10]} apple and the {metal} is here {number}"
    spans = (
        {"text": [metal], "answer_start": [context.index(metal)]} if number % 4 else {"text": [], "answer_start": []}
    )
    return {"question": "which metal is here ?", "context": context, "answers": spans, "id": str(number)}


@pytest.fixture
def make_job(make_encoder, settings: FinetuneSettings, cluster: ClusterSettings, tmp_path: Path) -> MakeJob:
    """make_job(kind, family, budgets=[6], **settings) -> a job on a task of this kind."""

    def make(
        kind: str,
        family: str,
        *,
        budgets: list[int | str] | None = None,
        source: dict[str, object] | None = None,
        **changes: object,
    ) -> FinetuneJob:
        folder, first = tmp_path / f"{kind}-task", 0
        for split, count in COUNTS.items():
            numbers = range(first, first + count)
            if kind == "tagging":
                made = [dict(zip(("words", "tags"), sentence(number), strict=True)) for number in numbers]
            else:
                made = [question(number) for number in numbers]
            write_jsonl(folder / f"{split}.jsonl", made)
            first += count
        columns = {"id": "id"} if kind == "questions" else {}
        keys = {"budgets": budgets or [6], "seeds": [0], "selection": "dev", **columns, **(source or {})}
        made_source = TaskSource(path=str(folder), kind=kind, overlap="report", **keys)
        return FinetuneJob(
            task="units",
            family=family,
            start="adapted",
            examples=examples(ExamplesJob(task="units", source=made_source, output=tmp_path / f"{kind}-examples")),
            encoder=make_encoder(family),
            output=tmp_path / "out",
            settings=settings.model_copy(update=changes),
            cluster=cluster,
        )

    return make


def test_questions_are_learned_and_the_threshold_is_stored(make_job, in_process):
    job = make_job(
        "questions", "bert", budgets=["all"], epochs=60, evaluations=4, dropout=0.0, head_dropout=0.0,
        discriminative=1.0, unfreeze_epochs=0,
    )  # fmt: skip
    training = job.settings.training.model_copy(update={"rate": 0.02})
    output = finetune(job.model_copy(update={"settings": job.settings.model_copy(update={"training": training})}))
    record = json.loads((output / "runs.json").read_text())[0]
    assert max(point["f1"] for point in record["curve"]) > 0.85
    classifier = load_classifier(output / "classifier")
    dev = read_split(job.examples, "dev")
    scores = scoring_for("questions", []).score(dev.fields, dev.targets, classifier.answer(dev.fields))
    assert scores["f1"] == pytest.approx(max(point["f1"] for point in record["curve"]), abs=1e-6)
    assert float(classifier.model.head.threshold) != 0.0
    assert read_manifest(output / "classifier").facts["task"] == "units"


@pytest.mark.parametrize("selection", ["dev", "budget"])
def test_the_average_of_question_answerers_has_a_threshold_of_its_own(selection, make_job, in_process):
    """Whose answers are the best on the rows that choices are made on; the mean of the thresholds is not."""
    keys = {"seeds": [0, 1, 2], "selection": selection, "folds": 2}
    job = make_job("questions", "bert", budgets=["all"], source=keys, epochs=12, evaluations=1, dropout=0.0)
    output = finetune(job)
    average = load_classifier(output / "classifier")
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
