"""Clusters of rows: the key `group`, its default, and the stored column."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from components.core.errors import ArtifactError
from components.data.tasks.data import Examples
from components.data.tasks.examples import ExamplesJob, examples, read_facts, read_split
from components.data.tasks.kinds import find_kind
from components.settings.tasks import TaskSource
from tests.tasks.labelled import jsonl


def source_of(folder: Path, *, services: int = 6, **keys: object) -> TaskSource:
    """A task with the columns service and customer in test; train and dev have one row per class and service."""
    for split in ("train", "dev", "test"):
        lines = [
            {"text": f"{split} {row}", "label": "ab"[row % 2], "service": f"s{row % services}", "customer": row // 2}
            for row in range(24)
        ]
        jsonl(folder / f"{split}.jsonl", *lines)
    return TaskSource.model_validate({"path": str(folder), "slice": "service", **keys})


def read(source: TaskSource) -> Examples:
    return find_kind(source.kind).read("task", source)


@pytest.mark.parametrize(
    ("services", "keys", "expected"),
    [
        # Slices are the clusters by default, unless they are few.
        (6, {}, [f"s{row % 6}" for row in range(24)]),
        (4, {}, [None] * 24),
        (4, {"group": "service"}, [f"s{row % 4}" for row in range(24)]),
        (6, {"group": "customer"}, [str(row // 2) for row in range(24)]),
        (6, {"group": None}, [None] * 24),
    ],
)
def test_the_clusters_of_rows(services, keys, expected, tmp_path):
    data = read(source_of(tmp_path, services=services, **keys))
    assert data.test.groups == data.train.groups == expected
    assert data.test.slices == [f"s{row % services}" for row in range(24)]
    taken = data.test.take([3, 0])
    assert (taken.groups, taken.lines) == ([expected[3], expected[0]], [4, 1])


def test_a_column_group_has_precedence_over_the_slices(tmp_path):
    source = source_of(tmp_path)
    path = tmp_path / "test.jsonl"
    lines = [
        json.loads(line) | {"group": f"g{number // 3}"} for number, line in enumerate(path.read_text().split("\n")[:-1])
    ]
    jsonl(path, *lines)

    actual = read(source)
    assert actual.test.groups == [f"g{row // 3}" for row in range(24)]
    assert actual.train.groups == [None] * 24
    # A column of another type is none of clusters.
    jsonl(path, *(line | {"group": [1]} for line in lines))
    assert read(source).test.groups == actual.test.slices


def test_clusters_of_other_formats(tmp_path):
    sentence = "# sent_id = {0}\n# author = {1}\n1\tgo\t_\tVERB\t_\t_\t_\t_\t_\t_\n2\ton\t_\tADP\t_\t_\t_\t_\t_\t_\n\n"
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.conllu").write_text(sentence.format(f"{split}1", "x") + sentence.format(f"{split}2", "y"))
    names = {split: f"{split}.conllu" for split in ("train", "dev", "test")}
    keys = {"kind": "tagging", "scheme": "none", "overlap": "report", **names}
    source = TaskSource.model_validate({"path": str(tmp_path), "group": "author", **keys})
    assert read(source).test.groups == ["x", "y"]

    def article(title, number):
        answer = {"text": "iron", "answer_start": 0}
        question = {"id": number, "question": f"What {number}?", "answers": [answer], "is_impossible": False}
        return {"title": title, "paragraphs": [{"context": f"iron {title}", "qas": [question]}]}

    for split in ("train", "dev", "test"):
        document = {"version": "v2.0", "data": [article("one", f"{split}1"), article("two", f"{split}2")]}
        (tmp_path / f"{split}.json").write_text(json.dumps(document))
    names = {split: f"{split}.json" for split in ("train", "dev", "test")}
    keys = {"path": str(tmp_path), "kind": "questions", "group": "title", **names}
    assert read(TaskSource.model_validate(keys)).test.groups == ["one", "two"]
    with pytest.raises(ValueError, match="group can only be auto or title in format squad; found 'author'"):
        TaskSource.model_validate(keys | {"group": "author"})


def test_clusters_are_stored_and_earlier_output_is_refused(tmp_path):
    source, output = source_of(tmp_path), tmp_path / "examples"
    examples(ExamplesJob(task="task", source=source, output=output))
    actual = read_split(output, "test")
    assert actual.groups == actual.slices

    # The digest of a split is that of earlier versions: it identifies the rows, not how variances are estimated.
    again = tmp_path / "again"
    examples(ExamplesJob(task="task", source=source.model_copy(update={"group": None}), output=again))
    assert read_facts(output).digests == read_facts(again).digests

    path = again / "test.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["group"]), path)
    with pytest.raises(ArtifactError, match=r"test.parquet: cannot be read .*; run the stage examples again"):
        read_split(again, "test")
