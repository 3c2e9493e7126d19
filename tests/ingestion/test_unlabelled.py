"""Texts without labels, without copies of dev and test; and the domain corpus of a run that names none."""

import json
from pathlib import Path

import pytest

from components.core.artifacts import read_manifest
from components.data.ingestion.stage import IngestJob, ingest
from components.data.ingestion.unlabelled import DomainTextsJob, UnlabelledJob, domain_texts, unlabelled
from components.data.tasks.examples import ExamplesJob, examples, read_rows_without_label
from components.data.unlabelled_texts import read_unlabelled
from components.settings.data import CorpusSource, IngestSettings
from components.settings.tasks import TaskSource
from tests.example_task import write_jsonl

LONG = "the name of the bucket that receives the log files of every account"
NEAR = " ".join(f"word{number}" for number in range(60))


@pytest.fixture
def job(tmp_path: Path) -> UnlabelledJob:
    """A task with 6 train rows, of which one has a text of test in other letters, and a corpus with copies."""
    for split, words in {"train": "abcdef", "dev": "gh", "test": "ij"}.items():
        actual = [{"text": f"text {word} of {split}", "label": (word in "aceg" and "x") or "y"} for word in words]
        actual += [{"text": text, "label": "x"} for text in {"dev": [NEAR], "test": [LONG]}.get(split, [])]
        write_jsonl(tmp_path / f"task/{split}.jsonl", actual)
    source = TaskSource(path=str(tmp_path / "task"), budgets=[1], seeds=[0], overlap="report")
    made = examples(ExamplesJob(task="words", source=source, output=tmp_path / "examples"))
    documents = ["one document", "Text A of TRAIN", "TEXT i of: test", "text g of dev", "another document"]
    documents += [f"It said: {LONG}!", f"{NEAR[:-6]}other"]
    write_jsonl(tmp_path / "domain/all.jsonl", [{"text": text} for text in documents])
    corpus = ingest(
        IngestJob(
            name="domain",
            source=CorpusSource(path=str(tmp_path / "domain")),
            settings=IngestSettings(heldout=0.0, near_duplicates=None),
            output=tmp_path / "corpus",
        )
    )
    return UnlabelledJob(
        task="words",
        key="finetune.bert.unlabelled",
        examples=made,
        corpus=corpus,
        which="both",
        rows=4_000,
        output=tmp_path / "out",
    )


def collected(job: UnlabelledJob, name: str, which: str = "task", **changes: object) -> list[str]:
    changed = job.model_copy(update={"which": which, "output": job.output / name, **changes})
    return [text for (text,) in read_unlabelled(unlabelled(changed))]


def test_texts_are_distinct_and_without_those_of_dev_and_test(job):
    train = {f"text {word} of train" for word in "abcdef"}
    assert set(collected(job, "task")) == train
    assert set(collected(job, "both", which="both")) == train | {"one document", "another document"}
    assert set(collected(job, "domain", which="domain")) == {"Text A of TRAIN", "one document", "another document"}


def test_copies_are_counted_where_they_would_have_been_collected(job):
    collected(job, "domain", which="domain")
    assert json.loads((job.output / "domain" / "metrics.json").read_text()) == {"texts": 3, "held_out": 4}


def test_the_domain_texts_are_all_texts_without_labels(job, tmp_path):
    """Those on which scores are computed are left out by the stage `ingest` (test_judged.py)."""
    source = CorpusSource(path=str(tmp_path / "domain"))
    output = domain_texts(DomainTextsJob(name="words", unlabelled=source, output=tmp_path / "domain-texts"))
    texts = [json.loads(line) for line in (output / "texts.jsonl").read_text().splitlines()]
    assert texts[0] == {"text": "one document", "id": "all.jsonl:1"} and len(texts) == 7
    assert json.loads((output / "metrics.json").read_text()) == {"texts": 7}


def test_without_settings_nothing_is_read_and_the_content_is_constant(job, tmp_path):
    job = job.model_copy(update={"which": None, "corpus": tmp_path / "none"})
    first = unlabelled(job)
    assert read_unlabelled(first) == [] and read_manifest(first).facts == {"sources": [], "rows": 0}


@pytest.mark.parametrize(("kind", "labels"), [("classification", ["x", "y"]), ("regression", [1.5, 2.5])])
def test_rows_without_a_label_are_text_without_labels(kind, labels, tmp_path):
    """Not those with a text of test, nor those of a group with labelled rows; an empty text is none."""
    rows = [{"text": f"text {word}", "label": labels[n % 2], "who": word} for n, word in enumerate("abcd")]
    without = [("more text", "z"), ("Text t!", "y"), ("of the same person", "a"), (" ", "w"), ("and more", None)]
    rows += [{"text": text, "label": None, "who": who} for text, who in without]
    write_jsonl(tmp_path / "task/train.jsonl", rows)
    write_jsonl(tmp_path / "task/test.jsonl", [{"text": "text t", "label": labels[0], "who": "t"}])
    keys = {"score": "label"} if kind == "regression" else {}
    source = TaskSource(
        path=str(tmp_path / "task"), kind=kind, dev=None, group="who", no_label="drop", budgets=[1], seeds=[0], **keys
    )
    made = examples(ExamplesJob(task="words", source=source, output=tmp_path / "examples"))
    assert [text for (text,) in read_rows_without_label(made)] == ["more text", "Text t!", "and more"]
    job = UnlabelledJob(
        task="words", key="words", examples=made, corpus=None, which=None, rows=10, output=tmp_path / "out"
    )
    assert {text for (text,) in read_unlabelled(unlabelled(job))} == {"more text", "and more"}
    assert read_manifest(tmp_path / "out").facts["sources"] == ["rows without a label"]
    domain_texts(DomainTextsJob(name="words", examples=made, output=tmp_path / "domain"))
    texts = [json.loads(line)["text"] for line in (tmp_path / "domain" / "texts.jsonl").read_text().splitlines()]
    assert texts == [*(f"text {word}" for word in "abcd"), "more text", "Text t!", "and more"]


def test_fewer_texts_are_the_first_ones(job):
    every = collected(job, "every", which="both")
    assert collected(job, "some", which="both", rows=3) == every[:3]
