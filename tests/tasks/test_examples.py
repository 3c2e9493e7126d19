"""Reading and validation of labelled data: messages of invalid input, nested budgets."""

import json
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.core.errors import ArtifactError, ConfigError, DataError
from components.data.tasks.budgets import ALL, sample_rows
from components.data.tasks.examples import ExamplesJob, examples, read_facts, read_split
from components.data.tasks.kinds import KINDS, find_kind
from components.settings.tasks import TaskSource
from tests.example_task import rows, write_jsonl


def read(source: TaskSource):
    return KINDS["classification"].read("things", source)


@pytest.mark.parametrize(
    ("files", "changes", "message"),
    [
        (
            {"train": [row for row in rows(3) if row["label"] == "metal"]},
            {},
            r"/train\.jsonl: holds only one class \('metal'\); a classifier needs two or more; check "
            r"data\.tasks\.things\.label$",
        ),
        (
            {"dev": rows(12), "test": rows(12)},
            {},
            "no rows are left in train without those that are also in a later split",
        ),
        (
            {
                "train": [row for row in rows(12) if row["label"] != "fruit"]
                + [row for row in rows(8, offset=200) if row["label"] == "fruit"]
            },
            {},
            r"no example of 'fruit' is left .* set data\.tasks\.things\.overlap to report",
        ),
        (
            {"train": [{"text": label, "label": label, "part": "x"} for label in "abc"]},
            {"dev": None, "test": None},
            r"data\.tasks\.things\.test_share: 0\.2 of 3 rows leaves all rows for train, since every label needs a row",
        ),
    ],
)
def test_rows_that_leave_nothing_to_learn_are_refused(files, changes, message, source):
    for split, actual in files.items():
        write_jsonl(Path(source.path) / f"{split}.jsonl", actual)
    with pytest.raises(DataError, match=message):
        read(source.model_copy(update=changes))


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({}, (36, 18, 24)),
        ({"dev": None, "selection": "budget"}, (36, 0, 24)),  # no label is held out for choices within the budget
        ({"dev_rows": 5}, (36, 5, 24)),
        ({"test": None, "test_share": 0.001}, (35, 18, 1)),
    ],
)
def test_sizes_of_the_splits(changes, sizes, source):
    actual = read(source.model_copy(update=changes))
    assert (len(actual.train), len(actual.dev), len(actual.test)) == sizes
    assert actual.counts.get("dev_rows_unused", 0) == (13 if "dev_rows" in changes else 0)


def overlapping(source: TaskSource, rule: str) -> TaskSource:
    """Two test texts (one in another case) and one dev text are also in train, one test text is also in dev."""
    test, dev = rows(8, offset=200), rows(6, offset=100)
    twins = [test[0], {**test[1], "text": test[1]["text"].upper() + "!"}, dev[0]]
    write_jsonl(Path(source.path) / "train.jsonl", rows(12) + twins)
    write_jsonl(Path(source.path) / "dev.jsonl", [*dev, test[5]])
    return source.model_copy(update={"overlap": rule})


@pytest.mark.parametrize(("rule", "left"), [("drop", (36, 18, 24)), ("report", (39, 19, 24))])
def test_overlap_is_dropped_from_the_earlier_split_or_reported(source, rule, left):
    data = read(overlapping(source, rule))
    assert (len(data.train), len(data.dev), len(data.test)) == left
    assert data.counts == {"train_rows_in_later_splits": 3, "dev_rows_in_later_splits": 1}


def test_a_class_lost_to_the_dev_share_is_named(source):
    path = Path(source.path) / "train.jsonl"
    # The only row of this class is assigned to dev by its hash.
    shares = {
        text: int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") for text in map(str, range(100))
    }
    only = next(text for text, share in shares.items() if share < 0.1 * 2**64)
    write_jsonl(path, [*rows(12), {"text": only, "label": "tree", "part": "x"}])
    with pytest.raises(DataError) as error:
        read(source.model_copy(update={"dev": None, "selection": "dev", "overlap": "report"}))
    assert str(error.value) == (
        f"{path}: no example of 'tree' is left once duplicates of dev and test are dropped; add some, or name a dev "
        "file (data.tasks.things.dev)"
    )


def test_budgets_are_nested_balanced_and_a_function_of_the_seed():
    labels = np.asarray([0, 1, 2] * 30)
    small, short = sample_rows(labels, 5, seed=3)
    large, _ = sample_rows(labels, 20, seed=3)
    assert set(small) <= set(large) and not short
    assert np.bincount(labels[small]).tolist() == [5, 5, 5]
    assert np.bincount(labels[large]).tolist() == [20, 20, 20]
    assert np.array_equal(small, sample_rows(labels, 5, seed=3)[0])
    assert not np.array_equal(small, sample_rows(labels, 5, seed=4)[0])
    assert sample_rows(labels, ALL, seed=3)[0].tolist() == list(range(90))


def test_the_stage_reports_classes_with_too_few_rows(source, tmp_path, capsys):
    job = ExamplesJob(task="things", source=source.model_copy(update={"budgets": [50]}), output=tmp_path / "out")
    examples(job)
    assert (
        "data.tasks.things: budget 50: 'metal' has 12 examples in train, all of them are used"
        in capsys.readouterr().out
    )


def test_a_split_that_was_written_again_is_read_again(task):
    first = read_split(task, "train")
    assert read_split(task, "train") is first
    path = task / "train.parquet"
    other = path.with_name("other.parquet")
    pq.write_table(pq.read_table(path).slice(1), other)
    other.replace(path)
    assert read_split(task, "train").fields == first.fields[1:]


def test_the_test_version_changes_with_its_content_alone(source, tmp_path):
    def digests(name):
        return read_facts(examples(ExamplesJob(task="things", source=source, output=tmp_path / name))).digests

    before = digests("before")
    path = Path(source.path) / "test.jsonl"
    result = rows(8, offset=200)
    write_jsonl(path, [dict(reversed(row.items())) for row in result])
    assert digests("same") == before
    write_jsonl(path, [{**result[0], "label": "metal"}, *result[1:]])
    changed = digests("changed")
    assert changed["test"] != before["test"] and changed["train"] == before["train"]


def test_an_unknown_kind_of_task_names_those_that_exist():
    with pytest.raises(ConfigError, match=r"data\.tasks\.x\.kind: unknown task kind 'classify'; did you mean 'classif"):
        find_kind("classify", key="data.tasks.x.kind")


def test_facts_of_another_version_of_the_stage_are_refused(task):
    manifest = task / "manifest.json"
    whole = json.loads(manifest.read_text())
    fewer = {name: value for name, value in whole["facts"].items() if name not in ("language", "baselines")}
    manifest.write_text(json.dumps({**whole, "facts": fewer}))
    with pytest.raises(ArtifactError, match=r"written by another version .baselines, language.; run"):
        read_facts(task)
    manifest.write_text(json.dumps({**whole, "facts": {**whole["facts"], "classes": 3}}))
    with pytest.raises(ArtifactError, match=r"written by another version .classes.; run the stage"):
        read_facts(task)


def test_the_stage_reports_rows_in_several_splits(source, tmp_path, capsys):
    for rule in ("drop", "report"):
        examples(ExamplesJob(task="things", source=overlapping(source, rule), output=tmp_path / rule))
        notices = [line for line in capsys.readouterr().out.splitlines() if "row(s)" in line]
        assert notices == [
            f"data.tasks.things: 3 row(s) of train are also in dev or test (overlap: {rule})",
            f"data.tasks.things: 1 row(s) of dev are also in test (overlap: {rule})",
        ]


def test_the_stage_writes_what_later_stages_read(task):
    facts = read_facts(task)
    assert (facts.task, facts.kind, facts.budgets, facts.seeds) == ("things", "classification", [2, 4], [0, 1])
    assert facts.labels == ["animal", "fruit", "metal"]
    assert read_split(task, "train").labels[:3].tolist() == [1, 2, 0]
    split = read_split(task, "train").take([4, 1])
    assert split.ids == ["train.jsonl:5", "train.jsonl:2"], "their files and lines, where no column names them"
    assert split.texts == [rows(12)[4]["text"], rows(12)[1]["text"]] and split.labels.tolist() == [2, 2]
