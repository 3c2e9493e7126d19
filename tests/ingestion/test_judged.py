"""Rows on which a score is computed are in no corpus that a language model reads: of every kind of task, in text of the
domain, text without labels and the texts of the tasks, as copies, near copies and inside of longer documents."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.artifacts import read_manifest
from components.core.errors import ConfigError, DataError
from components.data.formats import corpus
from components.data.ingestion.matching import HeldOut
from components.data.ingestion.stage import IngestJob, ingest
from components.data.tasks.budgets import sample_rows
from components.data.tasks.data import row_texts
from components.data.tasks.examples import ExamplesJob, examples, read_split, strata_of
from components.data.tasks.judged import read_judged
from components.pipeline.lineage.documents import texts_of
from components.pipeline.stages import STAGES
from components.settings.loading import load_params
from components.settings.params import Params
from components.settings.tasks import TaskSource
from tests.example_task import ROWS, rows, write_jsonl
from tests.ingestion.made import job

LONG = {name: " ".join(f"{name}{number}" for number in range(60)) for name in ("drawn", "left", "dev", "test")}
#: Settings with text of the domain for `init` and for the built-in task, and without.
TEXT: dict[str, dict[str, Any]] = {
    "general and domain": {"general": {"path": "more"}, "domain": {"path": "more"}},
    "without labels": {"unlabelled": ["more"]},
    "of the tasks": {},
}


def near(text: str) -> str:
    return text.rsplit(" ", 1)[0] + " other"


def made(folder: Path, kind: str, text: dict[str, Any], **task: Any) -> Params:
    """Settings of one task of 6 rows a class in train, of which a budget of 2 draws some with two seeds, and documents
    that repeat its texts."""
    row = ROWS[kind]
    for split, count, offset in (("train", 6, 0), ("dev", 2, 100), ("test", 2, 200)):
        write_jsonl(folder / f"task/{split}.jsonl", [row(each) for each in rows(count, offset=offset)])
    source = {"path": "task", "kind": kind, "budgets": [2], "seeds": [0, 1], "dev": "dev.jsonl", "test": "test.jsonl"}
    family = {"tokenizer": "word", "training": {"tokens": 1000, "rate": 0.001, "batch_size": 4}}
    settings = {
        "data": {"tasks": {"things": {**source, **task}}, **text},
        "run": {"families": ["ulmfit"], "starts": ["pretrained", *(["adapted"] if "domain" in text else [])]},
        "pretrain": {"ulmfit": family},
        "tokenizer": {"kinds": ["word"]},
        "adapt_task": {"things": {"epochs": 1}} if "domain" in text else {},
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(settings))
    return load_params(folder / "params.yaml")


def judged_rows(output: Path, kind: str) -> tuple[set[str], set[str]]:
    """The texts of dev, test and the drawn rows by the way in which runs draw them, and the texts of the other rows."""
    train = read_split(output, "train")
    drawn = {row for seed in (0, 1) for row in sample_rows(strata_of(train, kind), 2, seed=seed)[0].tolist()}
    held = [fields for split in ("dev", "test") for fields in read_split(output, split).fields]
    held += [train.fields[row] for row in sorted(drawn)]
    others = [fields for row, fields in enumerate(train.fields) if row not in drawn]
    texts = {text for fields in held for text in row_texts(kind, fields)}
    return texts, {text for fields in others for text in row_texts(kind, fields)} - texts


def run(params: Params, *names: str) -> None:
    for name in names:
        stage, _, prefix = name.partition("@")
        for item, arguments in STAGES[stage].items(params).items():
            if item.startswith(prefix):
                STAGES[stage].run(arguments)


def documents(params: Params) -> list[str]:
    folders = [arguments["output"] for arguments in STAGES["ingest"].items(params).values()]
    return [text for folder in folders for split in corpus.SPLITS for text in corpus.read_documents(folder, split)]


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("text", TEXT)
def test_no_corpus_has_a_text_of_a_judged_row(kind, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    params = made(tmp_path, kind, TEXT[text])
    run(params, "examples")
    judged, others = judged_rows(Path("artifacts/examples/things"), kind)
    assert set(read_judged([Path("artifacts/judged/things")])) == judged and others
    test = read_split(Path("artifacts/examples/things"), "test")
    # What `forget` removes where a row is named.
    assert texts_of(params, test.ids[0]) == list(dict.fromkeys(row_texts(kind, test.fields[0])))
    repeated = sorted(judged | others)
    further = [f"document {number} about {number * 7}" for number in range(3)]
    further += [f"It said: {each}! And more." for each in repeated] + [each.upper() for each in repeated]
    write_jsonl(tmp_path / "more/all.jsonl", [{"text": each} for each in [*repeated, *further]])
    run(params, "unlabelled@domain-", "ingest")
    read = documents(params)
    copies = HeldOut(judged).copies(read)
    assert not copies, [read[index] for index in copies]
    assert read and (kind != "classification" or set(read) >= others)


def with_judged(folder: Path, **settings: Any) -> IngestJob:
    return job(folder, heldout=0.0, **settings).model_copy(update={"judged": {"t": folder / "judged"}})


def test_near_copies_are_left_out_and_other_rows_stay(tmp_path):
    for split, names in (("train", ("drawn", "left")), ("dev", ("dev",)), ("test", ("test",))):
        write_jsonl(
            tmp_path / f"task/{split}.jsonl",
            [{"text": LONG[name], "label": "x"} for name in names] + [{"text": f"short {split}", "label": "y"}],
        )
    source = TaskSource(path=str(tmp_path / "task"), budgets=[1], seeds=[0])
    examples(ExamplesJob(task="t", source=source, output=tmp_path / "examples", record=tmp_path / "judged"))
    drawn = [name for name in ("drawn", "left") if LONG[name] in read_judged([tmp_path / "judged"])]
    assert len(drawn) == 1
    (stays,) = {"drawn", "left"} - set(drawn)
    texts = [*LONG.values(), *map(near, LONG.values()), "short train", "another document"]
    write_jsonl(tmp_path / "raw/all.jsonl", [{"text": text} for text in texts])
    for settings in ({}, {"near_duplicates": None}):
        ingest(with_judged(tmp_path, **settings))
        kept = set(corpus.read_documents(tmp_path / "corpus"))
        assert kept - {near(LONG[stays])} == {LONG[stays], "another document"}
        counts = json.loads((tmp_path / "corpus/metrics.json").read_text())
        assert counts["dropped_judged_row"] == 7


def test_the_corpus_is_out_of_date_only_if_the_judged_texts_change(tmp_path):
    """Another label of a row that no budget draws, or a row of text that is judged already, changes nothing."""
    train = [{"text": f"text {word} of train", "label": "xy"[number % 2]} for number, word in enumerate("abcdefgh")]
    write_jsonl(tmp_path / "task/dev.jsonl", [{"text": "text of dev", "label": "x"}, {"text": "more", "label": "y"}])
    write_jsonl(tmp_path / "task/test.jsonl", [{"text": "text of test", "label": "x"}, {"text": "all", "label": "y"}])
    write_jsonl(tmp_path / "raw/all.jsonl", [{"text": row["text"]} for row in train] + [{"text": "a document"}])
    source = TaskSource(path=str(tmp_path / "task"), budgets=[1], seeds=[0, 1])
    task = ExamplesJob(task="t", source=source, output=tmp_path / "examples", record=tmp_path / "judged")

    def learned(rows_of_train: list[dict[str, str]]) -> tuple[bytes, str | None, set[str]]:
        write_jsonl(tmp_path / "task/train.jsonl", rows_of_train)
        examples(task)
        ingest(with_judged(tmp_path))
        manifest = read_manifest(tmp_path / "corpus", kind="corpus")
        content = (tmp_path / "judged/manifest.json").read_bytes(), (tmp_path / "corpus/manifest.json").read_bytes()
        return b"".join(content), manifest.facts["rewritten"], set(corpus.read_documents(tmp_path / "corpus"))

    first, reason, texts = learned(train)
    assert reason == "first run" and "a document" in texts
    drawn = {row["text"] for row in train} - texts
    assert 2 <= len(drawn) <= 4
    # A row that `overlap` drops; and a change of rows, not of texts: they are drawn as before.
    assert learned([*train, {"text": "Text of DEV!", "label": "x"}])[0] == first
    assert learned([row | {"part": "new"} for row in train])[0] == first
    _, reason, texts = learned([row for row in train if row["text"] != min(drawn)])
    assert reason == "texts of judged rows changed" and min(drawn) in texts


def test_without_other_text_the_labelled_rows_of_all_budgets_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"the only text is that of the labelled rows.*name text in data\.unlabelled"):
        made(tmp_path, "classification", {}, budgets=["all"])
    assert made(tmp_path, "classification", {"unlabelled": ["more"]}, budgets=["all"]).collects_texts


def test_a_corpus_of_judged_rows_only_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    params = made(tmp_path, "classification", {}, budgets=[6])
    run(params, "examples", "unlabelled@domain-")
    with pytest.raises(DataError, match=r"0 kept.*18 judged row.*name further text in data\.unlabelled, or budgets"):
        run(params, "ingest")
