"""A few rows that are not as they should be do not refuse the others, and are counted."""

from pathlib import Path
from typing import Any

import pytest

from components.core.errors import DataError
from components.data.facts import Facts
from components.data.tasks.kinds.classification import UNSEEN
from components.labelling.rows import known_labels, read_rows
from components.settings.tasks import TaskSource
from headstart.tasks import read_task
from tests.data.public_inputs import targets_of
from tests.tasks.labelled import jsonl, read, targets
from tests.tasks.test_reading import squad as document


def labelled(path: Path, *labels: Any) -> None:
    jsonl(path, *({"text": f"text {path.stem} {number}", "label": label} for number, label in enumerate(labels)))


def test_a_label_of_test_that_train_lacks_is_an_error(tmp_path):
    labelled(tmp_path / "train.jsonl", "a", "b", "a", "b")
    labelled(tmp_path / "dev.jsonl", "a", "b")
    labelled(tmp_path / "test.jsonl", "a", "b", "new", "a", "other")
    data = read("classification", tmp_path)
    assert data.labels == ["a", "b"]
    assert targets(data.test) == [[0], [1], [UNSEEN], [0], [UNSEEN]]
    assert (data.counts["test_rows_with_unseen_label"], "dev_rows_with_unseen_label" in data.counts) == (2, False)
    facts = Facts("classification", data)
    assert "warning: 2 row(s) of test have a label that train lacks, and count as errors" in facts.lines()
    labelled(tmp_path / "test.jsonl", "a", "new", "new")
    with pytest.raises(DataError, match=r"test\.jsonl, line 2: label 'new' does not occur in train\.jsonl"):
        read("classification", tmp_path)


def test_several_labels_and_tags(tmp_path):
    labelled(tmp_path / "train.jsonl", ["a"], ["a", "b"], [])
    labelled(tmp_path / "dev.jsonl", ["a"])
    labelled(tmp_path / "test.jsonl", ["a"], ["a", "new"], [])
    data = read("multilabel", tmp_path)
    assert (data.labels, targets(data.test)) == (["a", "b", "new"], [[0], [0, 2], []])
    assert data.counts["test_rows_with_unseen_label"] == 1
    for split, words in (("train", "Bonn B-LOC\n\nhe O\n"), ("test", "Bonn B-LOC\n\nAda B-PER\n\nwe O\n")):
        (tmp_path / f"{split}.conll").write_text(words)
    data = read("tagging", tmp_path, train="train.conll", dev=None, test="test.conll", selection="budget")
    assert data.labels == ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
    assert [data.labels[int(target[0])] for target in data.test.targets] == ["B-LOC", "B-PER", "O"]
    assert data.counts["test_rows_with_unseen_label"] == 1


CONTEXT = "Iron is a metal. Gold is one, too."


def squad(path: Path, *answers: tuple[str, int]) -> None:
    questions = ((f"{path.stem}-{number}", f"What is {number}?", [answer]) for number, answer in enumerate(answers))
    path.write_text(document(*questions, context=CONTEXT))


def test_three_wrong_answers_do_not_refuse_690_right_ones(tmp_path):
    """One is beside its place, one is nowhere, one is empty."""
    right = [("metal", 10), ("Gold", 17), ("Iron", 0)] * 230
    wrong = [("metal", 11), ("silver", 3), (" ", 0)]
    squad(tmp_path / "train.json", *right, *wrong)
    squad(tmp_path / "test.json", *right[:3])
    files = {"train": "train.json", "dev": None, "test": "test.json", "overlap": "report"}
    data = read("questions", tmp_path, **files)
    assert (len(data.train), data.counts["wrong_spans"]) == (691, 3)
    moved = data.train.ids.index("train-690")
    assert targets(data.train)[moved] == [10, 15]
    squad(tmp_path / "train.json", *right[:50], *wrong)
    with pytest.raises(DataError, match=r"3 answer\(s\) of 3 question\(s\) do not match their context: correct them"):
        read("questions", tmp_path, **files)


VECTORS = [[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 1]]
NAMES = [["0", "2"], ["1"], [], ["0", "1", "2"]]


@pytest.mark.parametrize(
    "form", [list, str, lambda value: str(value).replace(",", ""), lambda value: [*map(float, value)]]
)
def test_vectors_of_0_and_1_are_labels_by_position(form, tmp_path):
    rows = [form(value) for value in VECTORS]
    for split in ("train", "dev", "test"):
        labelled(tmp_path / f"{split}.jsonl", *rows)
    data = read("multilabel", tmp_path)
    assert data.labels == ["0", "1", "2"]
    assert targets(data.train) == [[0, 2], [1], [], [0, 1, 2]]
    source = TaskSource(path=str(tmp_path), kind="multilabel")
    people = read_rows("t", source, splits=("train",))
    assert ([list(row.labels or ()) for row in people], known_labels(people, source)) == (NAMES, ["0", "1", "2"])
    task = read_task(str(tmp_path / "train.jsonl"))
    assert (task.kind, targets_of(task)) == ("multilabel", NAMES)


def test_lists_of_classes_are_no_vectors(tmp_path):
    for split in ("train", "dev", "test"):
        labelled(tmp_path / f"{split}.jsonl", [0], [1], [0, 1])
    assert targets(read("multilabel", tmp_path).train) == [[0], [1], [0, 1]]
