"""Splits and units by group, document and copy, for every kind of task."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.errors import DataError
from components.data.tasks.data import Examples
from components.data.tasks.examples import ExamplesJob, examples, read_facts, read_split
from components.data.tasks.kinds import find_kind
from components.settings.tasks import TaskSource
from tests.example_task import ROWS, rows, write_jsonl

CUSTOMERS = 40


def grouped(kind: str, *, groups: int = CUSTOMERS, count: int = 40) -> list[dict[str, Any]]:
    return [
        ROWS[kind](row) | {"customer": f"c{number % groups}", "id": str(number)}
        for number, row in enumerate(rows(count))
    ]


def source_of(folder: Path, found: list[dict[str, Any]], **keys: Any) -> TaskSource:
    write_jsonl(folder / "train.jsonl", found)
    named = {"train": "train.jsonl", "dev": None, "test": None, "group": "customer"}
    return TaskSource.model_validate({"path": str(folder), **named, **keys})


def read(source: TaskSource) -> Examples:
    return find_kind(source.kind).read("things", source)


@pytest.mark.parametrize("kind", sorted(ROWS))
def test_no_group_is_in_two_splits(kind, tmp_path):
    actual = read(source_of(tmp_path, grouped(kind), kind=kind, selection="dev"))
    names = [{*split.groups} for split in (actual.train, actual.dev, actual.test)]
    assert all(names) and sum(map(len, names)) == CUSTOMERS == len(set.union(*names))
    for split in (actual.train, actual.dev, actual.test):
        units = dict(zip(split.groups, split.units.tolist(), strict=True))
        assert [units[name] for name in split.groups] == split.units.tolist(), "a group is in one unit"


def test_sentences_of_a_document_are_in_one_split(tmp_path):
    given = [row | {"document": row.pop("customer")} for row in grouped("tagging")]
    actual = read(source_of(tmp_path, given, kind="tagging", document="document", group=None))
    units = [{*split.units.tolist()} for split in (actual.train, actual.test)]
    assert len(units[0] | units[1]) == CUSTOMERS and not units[0] & units[1]


def test_a_label_of_one_group_stays_in_train_with_its_group(tmp_path):
    given = grouped("classification")
    first = {row["customer"] for row in given} - {*read(source_of(tmp_path, given)).train.groups}
    only = min(first)
    for row in given:
        row["label"] = "rare" if row["customer"] == only else row["label"]
    actual = read(source_of(tmp_path, given))
    assert only not in actual.test.groups and actual.train.groups.count(only) == len(given) // CUSTOMERS


def test_few_groups_are_divided_and_one_is_refused(tmp_path):
    actual = read(source_of(tmp_path, grouped("multilabel", groups=2), kind="multilabel", test_share=0.01))
    assert len({*actual.train.groups}) == len({*actual.test.groups}) == 1
    with pytest.raises(DataError, match=r"test_share: 0.2 of 120 rows in 1 groups leaves all rows .* add groups"):
        read(source_of(tmp_path, grouped("classification", groups=1)))


def test_slices_that_are_in_train_and_test_are_no_units(tmp_path):
    for split, offset in (("train", 0), ("test", 1000)):
        actual = [row | {"part": f"s{number % 6}"} for number, row in enumerate(rows(12, offset=offset))]
        write_jsonl(tmp_path / f"{split}.jsonl", actual)
    keys = {"path": str(tmp_path), "slice": "part", "dev": None}
    train = read(TaskSource.model_validate(keys)).train
    assert {*train.groups} == {f"s{number}" for number in range(6)} and len({*train.units}) == len(train)


def test_groups_of_test_in_a_train_file_are_counted(tmp_path, capsys):
    write_jsonl(tmp_path / "test.jsonl", [row | {"customer": "c1"} for row in rows(1, offset=500)])
    source = source_of(tmp_path, grouped("classification"), test="test.jsonl")
    examples(ExamplesJob(task="things", source=source, output=tmp_path / "out"))
    assert (
        "3 row(s) of train are in a group of test, which is not new then (group: customer)" in capsys.readouterr().out
    )


def test_what_is_stored_and_said(tmp_path, capsys):
    given = grouped("classification")
    given[1] |= {"text": given[0]["text"] + " \u200b", "label": given[0]["label"]}
    source = source_of(tmp_path / "task", given, test_share=0.01)
    output = examples(ExamplesJob(task="things", source=source, output=tmp_path / "grouped"))
    said = capsys.readouterr().out
    assert "1 row(s) of train repeat an earlier text; copies are in one fold" in said
    assert "rows of train are in 38 groups, which folds keep together" in said
    counts = json.loads((output / "metrics.json").read_text())
    assert counts["train_rows_repeated"] == 1
    assert np.array_equal(read_split(output, "train").units, read(source).train.units)
    alone = source.model_copy(update={"group": None})
    other = examples(ExamplesJob(task="things", source=alone, output=tmp_path / "alone"))
    assert read_facts(other).digests["train"] != read_facts(output).digests["train"], "other folds"
