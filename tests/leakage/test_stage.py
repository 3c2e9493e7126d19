import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.data.ingestion.dedup import Shingles
from components.data.ingestion.matching import TextSearch
from components.data.ingestion.stage import IngestJob, ingest
from components.data.leakage.stage import LeakageJob, in_words, leakage
from components.data.tasks.examples import ExamplesJob, examples
from components.settings.data import CorpusSource, IngestSettings, NearDuplicates
from components.settings.evaluate import LeakageSettings
from components.settings.tasks import TaskSource
from tests.example_task import write_jsonl

LONG = "the name of the bucket that receives the log files of every account in the organisation each day"
NEAR = " ".join(f"word{number}" for number in range(60))


@pytest.fixture
def job(tmp_path: Path) -> LeakageJob:
    """One test row inside of a domain document, one whole document, one near copy; a train row of another task."""
    texts = {
        "general": ["one general text", "Whether versioning is on!"],
        "domain": [f"Before it. {LONG.upper()}, after it.", f"{NEAR} at last", "other"],
    }
    for name, actual in texts.items():
        write_jsonl(tmp_path / name / "a.jsonl", [{"text": text} for text in actual])
        near = NearDuplicates(threshold=1.0) if name == "domain" else None
        ingest(
            IngestJob(
                name=name,
                source=CorpusSource(path=str(tmp_path / name)),
                settings=IngestSettings(near_duplicates=near, heldout=0.0),
                output=tmp_path / "corpus" / name,
            )
        )
    splits = {
        "train": ["a train text", "of two labels"],
        "dev": ["nothing in common", "whether versioning is on"],
        "test": [LONG, "one general text that is longer than it", "one general text", f"but {NEAR}"],
    }
    for task in ("mine", "other"):
        for split, actual in splits.items():
            rows = [{"text": text, "label": "xy"[index % 2]} for index, text in enumerate(actual)]
            write_jsonl(tmp_path / task / f"{split}.jsonl", rows)
    rows = [{"text": text, "label": "x"} for text in (LONG, "another")] + [{"text": "third", "label": "y"}]
    write_jsonl(tmp_path / "other" / "train.jsonl", rows)
    for task in ("mine", "other"):
        source = TaskSource(path=str(tmp_path / task), overlap="report")
        examples(ExamplesJob(task=task, source=source, output=tmp_path / "examples" / task))
    return LeakageJob(
        task="mine",
        examples=tmp_path / "examples" / "mine",
        others={"other": tmp_path / "examples" / "other"},
        corpus=tmp_path / "corpus",
        systems={
            "m-scratch": ["train/mine"],
            "m-pretrained": ["corpus/general", "train/mine"],
            "m-adapted": ["corpus/general", "corpus/domain", "train/mine"],
            "m-scratch-with-both": ["train/mine", "train/other"],
        },
        unknown={"m-pretrained": ["published"]},
        settings=LeakageSettings(exact="refuse"),
        output=tmp_path / "leakage",
    )


def run(job: LeakageJob) -> dict[str, Any]:
    return json.loads((leakage(job) / "leakage.json").read_text())


def test_copies_are_counted_per_split_and_source_with_their_documents(job):
    actual = run(job)
    general, domain, mine, other = (actual["sources"][f"{name}"] for name in (
        "corpus/general", "corpus/domain", "train/mine", "train/other"))  # fmt: skip
    assert {split: general[split]["exact"] for split in ("dev", "test")} == {"dev": 1, "test": 1}
    assert general["test"]["examples"] == [{"row": "test.jsonl:3", "document": "a.jsonl:1", "similarity": 1.0}]
    assert domain["documents"] == 3 and domain["test"]["exact"] == 1 and domain["test"]["near"] == 1
    assert {single["document"] for single in domain["test"]["examples"] if single["row"] == "test.jsonl:1"} == {
        "a.jsonl:1"
    }
    (near,) = [single for single in domain["test"]["examples"] if single["row"] == "test.jsonl:4"]
    assert near["document"] == "a.jsonl:2" and 0.8 <= near["similarity"] < 1
    assert (mine["test"]["exact"], mine["test"]["near"]) == (0, 0)
    assert other["test"]["exact"] == 1


def test_a_system_is_refused_by_what_its_own_ancestors_saw(job):
    actual = run(job)
    assert {name: (single["exact"], bool(single["refused"])) for name, single in actual["systems"].items()} == {
        "m-scratch": (0, False),
        "m-pretrained": (1, True),
        "m-adapted": (2, True),
        "m-scratch-with-both": (1, True),
    }
    lines = list(in_words(actual))
    assert "corpus/general has copies of 1 exact and 0 near of 2 dev rows, 1 exact and 0 near of 4 test rows" in lines
    assert "published was imported: whether its training text has the test rows is unknown" in lines
    assert json.loads((job.output / "metrics.json").read_text())["corpus.domain.test.near"] == 1
    assert not any(
        single["refused"] for single in run(job.model_copy(update={"settings": LeakageSettings()}))["systems"].values()
    )


def test_exact_copies_agree_with_a_search_word_by_word():
    random = np.random.default_rng(0)
    words = [f"w{number}" for number in range(6)]
    documents = [" ".join(random.choice(words, random.integers(0, 40))) for _ in range(200)]
    texts = [" ".join(random.choice(words, random.integers(0, 12))) for _ in range(300)]
    texts += [" ".join(documents[index].split()[3:14]) for index in range(60)]
    wanted = TextSearch(texts, shingles=Shingles(ngram=5, permutations=64), rows=4, threshold=0.8)

    def holds(document, text):
        inside = len(text.split()) >= 8 and f" {text} " in f" {document} "
        return bool(text) and (text == document or inside)

    expected = {
        (row, index)
        for row, document in enumerate(documents)
        for index, text in enumerate(texts)
        if holds(document, text)
    }
    assert len(expected) > 50 and set(wanted.exact(documents)) == expected
