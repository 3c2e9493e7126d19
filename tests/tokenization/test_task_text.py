"""Items of the stage `tokenize`: the texts of a task for task-adaptive pretraining."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.artifacts import read_manifest, write_json, writing
from components.core.errors import ArtifactError
from components.tokenization.special import END, FIRST_ORDINARY, UNK
from components.tokenization.store import TokenStore
from components.tokenization.tokenize import TaskTokensJob, task_tokens
from tests.tokenizers import make_tokenizer

WORDS = ["red", "apple", "old", "iron", "who", "test"]
ID = {word: FIRST_ORDINARY + place for place, word in enumerate(WORDS)}


def job(tmp_path: Path, kind: str, **splits: list[list[str]]) -> TaskTokensJob:
    with writing(tmp_path / "examples", kind="examples") as draft:
        for name, rows in splits.items():
            table = pa.table({"fields": pa.array(rows, pa.list_(pa.string()))})
            pq.write_table(table, draft.path / f"{name}.parquet")
        draft.facts |= {"task": "things", "kind": kind, "digests": {"train": "t"}}
    make_tokenizer("word", WORDS).save(tmp_path / "tokenizer")
    return TaskTokensJob(examples=tmp_path / "examples", tokenizer=tmp_path / "tokenizer", output=tmp_path / "tokens")


def documents(output: Path, split: str) -> list[list[int]]:
    store = TokenStore(output, split)
    return [store.document(index).tolist() for index in range(store.documents)]


def ids(*words: str) -> list[int]:
    return [*(ID[word] for word in words), END]


def test_train_is_for_training_and_dev_for_perplexity(tmp_path):
    output = task_tokens(
        job(tmp_path, "classification", train=[["red apple"], ["old iron"], ["red apple"]], dev=[["old apple"]],
            test=[["test"]])
    )  # fmt: skip
    assert documents(output, "train") == [ids("red", "apple"), ids("old", "iron")]
    assert documents(output, "heldout") == [ids("old", "apple")]
    metrics = json.loads((output / "metrics.json").read_text())
    assert (metrics["train"]["documents"], metrics["train"]["tokens"], metrics["heldout"]["tokens"]) == (2, 6, 3)
    assert read_manifest(output, kind="tokens", verify=True).facts["vocabulary"] == FIRST_ORDINARY + len(WORDS)


def test_every_field_is_a_text_and_texts_are_distinct(tmp_path):
    rows = [["who", "red apple"], ["old", "red apple"], ["who", " "]]
    output = task_tokens(job(tmp_path, "questions", train=rows, dev=rows[:1]))
    assert documents(output, "train") == [ids("who"), ids("red", "apple"), ids("old")]


def test_a_damaged_table_is_an_error(tmp_path):
    broken = job(tmp_path, "classification", train=[["red"]], dev=[["old"]])
    (broken.examples / "train.parquet").write_bytes(b"no table")
    with pytest.raises(ArtifactError, match="train.parquet"):
        task_tokens(broken)


def test_without_dev_no_text_is_held_out(tmp_path):
    output = task_tokens(job(tmp_path, "classification", train=[["red apple"], ["old iron"]], dev=[], test=[["test"]]))
    assert documents(output, "train") == [ids("red", "apple"), ids("old", "iron")]
    assert documents(output, "heldout") == []


def test_the_words_of_a_sentence_are_one_text(tmp_path):
    output = task_tokens(job(tmp_path, "tagging", train=[["red", "apple"], ["old", "iron"]], dev=[["red"]]))
    assert documents(output, "train") == [ids("red", "apple"), ids("old", "iron")]


def test_texts_on_which_scores_are_computed_are_not_learned(tmp_path):
    given = job(tmp_path, "classification", train=[["red apple"], ["old iron"]], dev=[["Red apple!"]])
    with writing(tmp_path / "judged", kind="judged") as draft:
        write_json(draft.path / "texts.json", {"texts": ["Red apple!"]})
    output = task_tokens(given.model_copy(update={"judged": {"things": tmp_path / "judged"}}))
    assert documents(output, "train") == [ids("old", "iron")] and documents(output, "heldout") == [
        [*ids("red", "apple")[:-1], UNK, END]
    ]
