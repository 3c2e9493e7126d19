"""Answers merged into the labelled data: who and when, conflicts, undo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.account import who
from components.errors import DataError
from components.labelling.answers import Answer, ConflictError, givers, ledger_of, merge, read_answers, undo
from components.settings.params import Params
from tests.example_task import rows
from tests.labelling.conftest import lines

Project = Callable[..., Params]
LEDGER = "task/labels-things.ledger.jsonl"
KNOWN, HELD = rows(1)[0], rows(1, offset=200)[0]


def labels() -> dict[str, str]:
    return {row["text"]: row["label"] for row in lines("task/train.jsonl")}


def test_answers_become_rows_with_who_and_when(project: Project) -> None:
    params = project()
    before = Path("task/train.jsonl").read_bytes()
    answers = [
        Answer(("a horse and a goat",), ("animal",), by="ann", time="2026-01-02T03:04:05+00:00"),
        Answer((KNOWN["text"].upper() + "!",), (KNOWN["label"],)),
    ]
    found = merge(params, answers)
    assert (found.added, found.changed, found.unchanged, found.left_out) == (1, 0, 1, 0)
    assert found.file == Path("task/train.jsonl")
    assert Path("task/train.jsonl").read_bytes() == before + b'{"text": "a horse and a goat", "label": "animal"}\n'
    (entry,) = lines(LEDGER)
    assert (entry["by"], entry["time"], entry["merged_by"]) == ("ann", "2026-01-02T03:04:05+00:00", who())
    assert (entry["action"], entry["before"], entry["after"]) == ("add", None, ["animal"])
    again = merge(params, answers)
    assert (again.added, again.unchanged, again.batch, len(lines(LEDGER))) == (0, 2, "", 1)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            [Answer((KNOWN["text"],), ("metal",), where="a.csv, line 2")],
            r"a\.csv, line 2: .*'metal', and 'fruit' in task/",
        ),
        (
            [Answer(("new",), ("metal",), by="ann"), Answer(("New.",), ("fruit",), by="bob")],
            "'metal' .ann., 'fruit' .bob.",
        ),
        ([Answer(("new",), ("metall",))], "label 'metall' does not occur in train; .*metal"),
        ([Answer((HELD["text"],), ("fruit",))], "is also in test .task/test.jsonl:1."),
    ],
)
def test_conflicts_are_shown_and_nothing_is_written(project: Project, answers: list[Answer], message: str) -> None:
    params = project()
    before = Path("task/train.jsonl").read_bytes()
    with pytest.raises(ConflictError, match=message) as caught:
        merge(params, [Answer(("another",), ("fruit",)), *answers])
    assert len(caught.value.conflicts) == 1
    assert Path("task/train.jsonl").read_bytes() == before
    assert not Path(LEDGER).exists()


def test_conflicts_are_settled_by_a_rule(project: Project) -> None:
    params = project()
    old, new = "2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00"
    text = (KNOWN["text"],)
    assert merge(params, [Answer(text, ("metal",), time=new)], resolve="theirs").left_out == 1
    assert labels()[KNOWN["text"]] == "fruit"
    # The label of the file has no time, so an answer is newer.
    assert merge(params, [Answer(text, ("metal",), time=new)], resolve="newest").changed == 1
    assert labels()[KNOWN["text"]] == "metal"
    assert merge(params, [Answer(text, ("animal",), time=old)], resolve="newest").left_out == 1
    assert labels()[KNOWN["text"]] == "metal"
    assert merge(params, [Answer(text, ("animal",), time=old)], resolve="mine").changed == 1
    assert labels()[KNOWN["text"]] == "animal"
    two = [Answer(("new",), ("metal",), time=new), Answer(("new",), ("fruit",), time=old)]
    assert merge(params, two, resolve="theirs").added == 0
    assert merge(params, two, resolve="newest").added == 1
    assert labels()["new"] == "metal"
    assert merge(params, [Answer((HELD["text"],), ("fruit",))], resolve="mine").left_out == 1
    assert HELD["text"] not in labels()
    assert merge(params, [Answer(("stone",), ("mineral",))], new_labels=True).added == 1


def test_undo_takes_back_whole_merges_in_reverse(project: Project) -> None:
    params = project()
    before = Path("task/train.jsonl").read_bytes()
    merge(params, [Answer(("one",), ("metal",)), Answer(("two",), ("fruit",))])
    after = Path("task/train.jsonl").read_bytes()
    merge(params, [Answer(("two",), ("metal",)), Answer((KNOWN["text"],), ("metal",))], resolve="mine")
    ledger = ledger_of("things", params.data.tasks["things"])
    assert len(givers(ledger)) == 3
    assert (undo(params).changed, labels()) == (2, labels() | {"two": "fruit", KNOWN["text"]: "fruit"})
    assert undo(params).added == 2
    assert labels().keys() == {row["text"] for row in rows(2)}
    assert len(Path("task/train.jsonl").read_bytes()) == len(before) < len(after)
    with pytest.raises(DataError, match="no merge to take back"):
        undo(params)
    assert [entry["action"] for entry in lines(LEDGER)] == ["add", "add", "change", "change", *["undo"] * 4]
    assert givers(ledger) == {}


def test_undo_refuses_rows_that_have_changed_since(project: Project) -> None:
    params = project()
    merge(params, [Answer(("one",), ("metal",))])
    path = Path("task/train.jsonl")
    path.write_text(path.read_text().replace('"one", "label": "metal"', '"one", "label": "fruit"'))
    with pytest.raises(DataError, match="the row 'one' has changed since"):
        undo(params)


def test_rows_without_a_label_get_one(project: Project) -> None:
    params = project()
    path = Path("task/train.jsonl")
    path.write_text(path.read_text() + '{"text": "open", "label": ""}\n')
    assert merge(params, [Answer(("open",), ("metal",))]).changed == 1
    assert labels()["open"] == "metal"
    undo(params)
    assert labels()["open"] == ""


def test_the_first_labels_of_a_task(project: Project) -> None:
    params = project(labels=0)
    assert merge(params, [Answer(("one",), ("metal",)), Answer(("two",), ("fruit",))]).added == 2
    assert labels() == {"one": "metal", "two": "fruit"}


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_files_of_answers(project: Project, suffix: str) -> None:
    source = project().data.tasks["things"]
    path = Path(f"a.{suffix}")
    values: list[dict[str, Any]] = [
        {"text": "one", "label": " metal ", "by": "", "time": ""},
        {"text": "two", "label": "", "by": "bob", "time": ""},
        {"text": "three", "label": "fruit", "by": "bob", "time": "2026-01-02"},
    ]
    if suffix == "jsonl":
        import json

        path.write_text("".join(json.dumps(row) + "\n" for row in values))
    else:
        mark = "," if suffix == "csv" else "\t"
        path.write_text(
            "\n".join([mark.join(values[0]), *(mark.join(row.values()) for row in values)]) + "\n", "utf-8-sig"
        )
    found, empty = read_answers(path, source, by="ann")
    assert [(answer.fields, answer.labels, answer.by, answer.time) for answer in found] == [
        (("one",), ("metal",), "ann", ""),
        (("three",), ("fruit",), "bob", "2026-01-02"),
    ]
    assert empty == 1
    path.write_text(path.read_text(encoding="utf-8-sig").replace("2026-01-02", "yesterday"))
    with pytest.raises(DataError, match="time 'yesterday' is not ISO 8601"):
        read_answers(path, source)
    path.write_text(path.read_text().replace("text", "txt"))
    with pytest.raises(DataError, match="no column 'text'"):
        read_answers(path, source)


def test_a_copy_of_data_at_an_address_takes_no_labels(project: Project) -> None:
    params = project(path="imports/0123abcd/reviews")
    with pytest.raises(DataError, match="is a copy of data at an address, which every run renews"):
        merge(params, [Answer(("new",), ("fruit",))])
