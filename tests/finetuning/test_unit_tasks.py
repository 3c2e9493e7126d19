"""Tagging and question answering in the stage: every family, and equal answers of the stored model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.artifacts import read_manifest
from components.baselines.stage import BaselineJob, baseline
from components.finetuning.stage import FinetuneJob, finetune
from components.models import FAMILIES
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.settings.tasks import TaskSource
from components.task_models.classifier import load_classifier
from components.tasks.examples import ExamplesJob, examples, read_split
from components.tasks.kinds import scoring_for
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

    def make(kind: str, family: str, *, budgets: list[int | str] | None = None, **changes: object) -> FinetuneJob:
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
        source = TaskSource(
            path=str(folder), kind=kind, budgets=budgets or [6], seeds=[0], overlap="report", selection="dev", **columns
        )
        return FinetuneJob(
            task="units",
            family=family,
            start="adapted",
            examples=examples(ExamplesJob(task="units", source=source, output=tmp_path / f"{kind}-examples")),
            encoder=make_encoder(family),
            output=tmp_path / "out",
            settings=settings.model_copy(update=changes),
            cluster=cluster,
        )

    return make


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize(
    ("kind", "tagger", "method"),
    [("tagging", "linear", "finetune"), ("tagging", "bilstm_crf", "features"), ("questions", "linear", "finetune")],
)
def test_every_family_learns_from_units(
    kind: str, tagger: str, method: str, family: str, make_job: MakeJob, in_process
) -> None:
    # Windows of few pieces, so that some rows have several.
    length = 14 if family != "flair" else 40
    job = make_job(kind, family, tagger=tagger, tagger_hidden=4, method=method, max_length=length, epochs=1)
    output = finetune(job)
    rows = pq.read_table(output / "runs.parquet").to_pylist()
    test = read_split(job.examples, "test")
    found = [np.asarray(row["answer"], dtype=np.float32) for row in rows if row["split"] == "test"]
    assert len(found) == COUNTS["test"]
    labels = json.loads((output / "labels.json").read_text())
    if kind == "tagging":
        assert labels == sorted(["O", *(f"{prefix}-{name}" for prefix in "BI" for name in WORDS)])
        assert [len(answer) for answer in found] == [7] * len(found)
    else:
        assert labels == []
        for answer, (_, context) in zip(found, test.fields, strict=True):
            start, end, score, none = answer.tolist()
            assert 0 <= start <= end <= len(context)
            assert (start == end) == (none > score)
            assert context[int(start) : int(end)] == context[int(start) : int(end)].strip()
    classifier = load_classifier(output / "classifier")
    for answer, again in zip(found, classifier.answer(test.fields), strict=True):
        np.testing.assert_allclose(answer, again, atol=1e-3)


@pytest.mark.parametrize("tagger", ["linear", "crf", "bilstm_crf"])
def test_a_tagger_learns_an_easy_task(tagger: str, make_job: MakeJob, in_process) -> None:
    job = make_job(
        "tagging", "bert", budgets=["all"], tagger=tagger, tagger_hidden=16, epochs=40, evaluations=4, dropout=0.0,
        head_dropout=0.0, discriminative=1.0, unfreeze_epochs=0,
    )  # fmt: skip
    training = job.settings.training.model_copy(update={"rate": 0.02})
    output = finetune(job.model_copy(update={"settings": job.settings.model_copy(update={"training": training})}))
    record = json.loads((output / "runs.json").read_text())[0]
    assert record["score"] == "span_f1"
    assert max(point["span_f1"] for point in record["curve"]) > 0.9


def test_questions_are_learned_and_the_threshold_is_stored(make_job: MakeJob, in_process) -> None:
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


@pytest.mark.parametrize(
    ("kind", "systems"),
    [("tagging", ["word-features-crf", "most-frequent"]), ("questions", ["sliding-window", "most-frequent"])],
)
def test_systems_without_a_language_model(kind: str, systems: list[str], make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(kind, "bert", budgets=[6, "all"])
    output = baseline(BaselineJob(examples=job.examples, output=tmp_path / "baselines"))
    records = json.loads((output / "runs.json").read_text())
    assert [(record["system"], record["budget"]) for record in records] == [
        (system, budget) for budget in (6, -1) for system in systems
    ]
    score = {"tagging": "span_f1", "questions": "f1"}[kind]
    last = {record["system"]: record["curve"][0][score] for record in records if record["budget"] == -1}
    assert last[systems[0]] > last["most-frequent"] >= 0
    rows = pq.read_table(output / "runs.parquet").to_pylist()
    dev = read_split(job.examples, "dev")
    for record in records:
        found = [
            np.asarray(row["answer"])
            for row in rows
            if (row["system"], row["budget"], row["split"]) == (record["system"], record["budget"], "dev")
        ]
        labels = json.loads((output / "labels.json").read_text())
        again = scoring_for(kind, labels).score(dev.fields, dev.targets, found)
        assert again[score] == pytest.approx(record["curve"][0][score])
