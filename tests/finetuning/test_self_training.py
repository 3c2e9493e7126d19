"""Heads on frozen features that also learn from text without labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.artifacts import read_manifest
from components.errors import ConfigError
from components.finetuning import self_training
from components.finetuning.stage import FinetuneJob, finetune
from components.ingestion.unlabelled import UnlabelledJob, unlabelled
from components.models import FAMILIES
from components.settings.tasks import TaskSource
from components.settings.unlabelled import UnlabelledSettings
from components.task_models.classifier import load_classifier
from components.task_models.kinds import TASKS
from components.tasks.examples import ExamplesJob, examples, read_split
from components.unlabelled.texts import read_unlabelled
from tests.example_task import ROWS, rows, write_jsonl

BUDGETS = {"classification": 3, "multilabel": 9, "pair": 3}


@pytest.fixture
def few(make_job, tmp_path: Path) -> Callable[..., FinetuneJob]:
    """few(family, kind, **settings) -> a job with few labels, and the other train rows without labels."""

    def make(
        family: str, kind: str = "classification", *, selection: str = "budget", name: str = "out", **changes: Any
    ) -> FinetuneJob:
        folder = tmp_path / f"few-{kind}"
        for split, count, offset in (("train", 10, 0), ("dev", 2, 100), ("test", 3, 200)):
            write_jsonl(folder / f"{split}.jsonl", [ROWS[kind](row) for row in rows(count, offset=offset)])
        source = TaskSource(
            path=str(folder), kind=kind, budgets=[BUDGETS.get(kind, 9)], seeds=[0], selection=selection, folds=3
        )
        made = tmp_path / f"few-examples-{kind}-{selection}"
        if not made.exists():
            examples(ExamplesJob(task="things", source=source, output=made))
        settings = UnlabelledSettings(rounds=2, confidence=0.4, **changes.pop("unlabelled", {}))
        texts = tmp_path / f"texts-{kind}-{selection}"
        if not texts.exists():
            unlabelled(
                UnlabelledJob(
                    task="things",
                    key="finetune.bert.unlabelled",
                    examples=made,
                    corpus=tmp_path,
                    settings=settings,
                    output=texts,
                )
            )
        changes = {"method": "features", "head_steps": 30, "unlabelled": settings, **changes}
        job = make_job(family, kind, name=name, **changes)
        return job.model_copy(update={"examples": made, "unlabelled": texts})

    return make


def record_of(output: Path) -> dict[str, Any]:
    (record,) = json.loads((output / "runs.json").read_text())
    return record


def answers_of(output: Path, split: str = "test") -> list[list[float]]:
    table = pq.read_table(output / "runs.parquet", filters=[("split", "=", split)])
    return table.column("answer").to_pylist()


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_learns_from_text_without_labels(family: str, few, in_process) -> None:
    job = few(family)
    output = finetune(job)
    record = record_of(output)
    assert [point["step"] for point in record["curve"]] == [0, 1, 2]
    assert record["best_step"] == record["chosen"]
    served = load_classifier(output / "classifier").answer(read_split(job.examples, "test").fields)
    np.testing.assert_array_equal(served, np.asarray(answers_of(output), dtype=np.float32))


@pytest.mark.parametrize("selection", ["budget", "dev"])
@pytest.mark.parametrize("kind", sorted(TASKS))
def test_kinds_with_probabilities_of_labels_learn_from_it_and_others_ignore_it(
    kind: str, selection: str, few, in_process
) -> None:
    record = record_of(finetune(few("bert", kind, selection=selection)))
    found = TASKS[kind].head(few("bert", kind).settings, 1, ["a", "b"])
    if getattr(found, "exclusive", None) is None:
        assert "self_training" not in record
        return
    assert [point["step"] for point in record["curve"]] == [0, 1, 2]
    if record["best_step"] or selection == "dev":
        assert record["self_training"][0]["texts"] > 0


def test_texts_of_labelled_rows_and_of_dev_and_test_are_left_out(few, tmp_path: Path) -> None:
    job = few("bert")
    texts = {fields[0] for fields in read_unlabelled(job.unlabelled)}
    assert len(texts) == 30
    assert not texts & {fields[0] for name in ("dev", "test") for fields in read_split(job.examples, name).fields}
    assert read_manifest(job.unlabelled).facts["sources"] == ["task"]


def test_a_round_that_is_worse_is_not_kept(few, in_process, monkeypatch, tmp_path: Path) -> None:
    job = few("bert", name="with")
    alone = finetune(
        job.model_copy(
            update={"settings": job.settings.model_copy(update={"unlabelled": None}), "output": tmp_path / "alone"}
        )
    )

    def harmful(spec, head, *_: Any, **__: Any):
        for _ in range(2):
            head.output.weight.data.mul_(0)
            yield {"texts": 1, "pseudo_labels": 0}

    monkeypatch.setattr("components.finetuning.member.train_rounds", harmful)
    output = finetune(job)
    assert record_of(output)["best_step"] == 0
    assert answers_of(output) == answers_of(alone)


def test_a_killed_run_ends_bit_identical(few, in_process, monkeypatch) -> None:
    unbroken = finetune(few("gpt", name="unbroken"))
    real, calls = self_training.rounds, 0

    def breaks_off(*arguments: Any, **named: Any):
        nonlocal calls
        calls += 1
        for number, found in enumerate(real(*arguments, **named)):
            if calls == 2 and number == 1:
                raise KeyboardInterrupt
            yield found

    monkeypatch.setattr(self_training, "rounds", breaks_off)
    broken = few("gpt", name="broken")
    with suppress(KeyboardInterrupt):
        finetune(broken)
    assert not broken.output.exists() and calls == 2
    finetune(broken)
    for output in (broken.output, unbroken):
        assert answers_of(output, "oof")
    assert answers_of(broken.output) == answers_of(unbroken)
    files = [read_manifest(output / "classifier").files["head.safetensors"] for output in (broken.output, unbroken)]
    assert files[0] == files[1]


def test_a_job_without_texts_is_refused(few) -> None:
    with pytest.raises(ConfigError, match="names no directory with texts"):
        finetune(few("bert").model_copy(update={"unlabelled": None}))


def test_documents_are_no_rows_of_pairs(few, tmp_path: Path) -> None:
    job = few("bert", "pair")
    with pytest.raises(ConfigError, match=r"finetune.bert.unlabelled.source: 'both' includes documents"):
        unlabelled(
            UnlabelledJob(
                task="things",
                key="finetune.bert.unlabelled",
                examples=job.examples,
                corpus=tmp_path,
                settings=UnlabelledSettings(source="both"),
                output=tmp_path / "none",
            )
        )
