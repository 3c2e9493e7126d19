"""Answers merged into the labelled data: who and when, conflicts, undo."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.core.environment import who
from components.core.errors import DataError
from components.data.tasks.kinds import find_kind
from components.labelling.answers import Answer, ConflictError, merge, read_answers, undo
from components.labelling.rows import read_rows
from components.pipeline import checks
from components.settings.params import Params
from tests.example_task import rows, write_jsonl
from tests.labelling.conftest import lines

Project = Callable[..., Params]
LEDGER = "task/labels-things.ledger.jsonl"
PAIR = '{"first": "%s", "second": "b", "label": "%s"}\n'
KNOWN, HELD = rows(1)[0], rows(1, offset=200)[0]


def labels(params: Params) -> dict[str, str]:
    """The labels of train, as `suggest` and the pages read them."""
    actual = read_rows("things", params.data.tasks["things"], splits=("train",))
    return {row.fields[0]: ",".join(row.labels or ()) for row in actual}


def learned(params: Params) -> dict[str, str]:
    """The labels of train, as the stages read them."""
    source = params.data.tasks["things"]
    actual = find_kind(source.kind).read("things", source)
    names = [",".join(actual.labels[int(index)] for index in target) for target in actual.train.targets]
    return dict(zip((fields[0] for fields in actual.train.fields), names, strict=True))


def test_answers_become_rows_with_who_and_when(project):
    params = project()
    before = Path("task/train.jsonl").read_bytes()
    answers = [
        Answer(("a horse and a goat",), ("animal",), by="ann", time="2026-01-02T03:04:05+00:00"),
        Answer((KNOWN["text"].upper() + "!",), (KNOWN["label"],)),
    ]
    actual = merge(params, answers)
    assert (actual.added, actual.changed, actual.unchanged, actual.left_out) == (1, 0, 1, 0)
    assert actual.file == Path(LEDGER) and Path("task/train.jsonl").read_bytes() == before
    assert learned(params) == labels(params) and labels(params)["a horse and a goat"] == "animal"
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


def test_conflicts_are_settled_by_a_rule(project):
    params = project()
    text = (KNOWN["text"],)
    assert merge(params, [Answer(text, ("metal",))], resolve="theirs").left_out == 1
    assert labels(params)[KNOWN["text"]] == "fruit"
    assert merge(params, [Answer(text, ("animal",))], resolve="mine").changed == 1
    assert labels(params)[KNOWN["text"]] == "animal"
    two = [Answer(("new",), ("metal",)), Answer(("new",), ("fruit",))]
    assert merge(params, two, resolve="theirs").added == 0
    assert merge(params, two, resolve="mine").added == 1
    assert labels(params)["new"] == "fruit"
    assert merge(params, [Answer((HELD["text"],), ("fruit",))], resolve="mine").left_out == 1
    assert HELD["text"] not in labels(params)
    assert merge(params, [Answer(("stone",), ("mineral",))], new_labels=True).added == 1


def test_undo_takes_back_whole_merges_in_reverse(project):
    params = project()
    before = labels(params)
    merge(params, [Answer(("one",), ("metal",)), Answer(("two",), ("fruit",))])
    merge(params, [Answer(("two",), ("metal",)), Answer((KNOWN["text"],), ("metal",))], resolve="mine")
    assert labels(params) == before | {"one": "metal", "two": "metal", KNOWN["text"]: "metal"} == learned(params)
    assert (undo(params).changed, labels(params)) == (2, before | {"one": "metal", "two": "fruit"})
    assert undo(params).added == 2
    assert labels(params) == before
    with pytest.raises(DataError, match="no merge to take back"):
        undo(params)
    assert [entry["action"] for entry in lines(LEDGER)] == ["add", "add", "change", "change", "undo", "undo"]


def test_labels_that_an_earlier_version_wrote_into_the_train_file_stay_there(project):
    params = project()
    entry = {"batch": "b", "time": "2026-02-01", "by": "ann", "action": "change", "file": "train.jsonl"}
    entry |= {"texts": [KNOWN["text"]], "before": ["fruit"], "after": ["metal"]}
    Path(LEDGER).write_text(json.dumps(entry) + "\n")
    assert labels(params)[KNOWN["text"]] == "fruit", "the train file was corrected since"
    with pytest.raises(DataError, match=r"earlier version .* wrote the merge b into train.jsonl; restore"):
        undo(params)


def test_a_damaged_line_is_refused(project):
    params = project()
    Path(LEDGER).write_text('\n{"batch": "b", "action": "add"}\n')
    with pytest.raises(DataError, match=r"ledger.jsonl, line 2: damaged .'time'.; restore the file"):
        learned(params)


def test_rows_without_a_label_get_one(project):
    params = project()
    path = Path("task/train.jsonl")
    path.write_text(path.read_text() + '{"text": "open", "label": ""}\n')
    assert merge(params, [Answer(("open",), ("metal",))]).changed == 1
    assert labels(params)["open"] == "metal" == learned(params)["open"]
    undo(params)
    assert labels(params)["open"] == ""


def test_the_first_labels_of_a_task(project):
    params = project(count=0)
    answers = [Answer((row["text"],), (row["label"],)) for row in rows(3)]
    assert merge(params, answers).added == 9
    assert labels(params) == {row["text"]: row["label"] for row in rows(3)} == learned(params)
    assert not [problem for problem in checks._files(params) if "train" in problem]


def test_a_train_file_with_a_header_only_takes_labels(project):
    params = project(count=0, train="train.csv", test="test.jsonl")
    Path("task/train.csv").write_text("text,label\n")
    merge(params, [Answer((row["text"],), (row["label"],)) for row in rows(3)])
    assert learned(params) == {row["text"]: row["label"] for row in rows(3)}
    last = Path(LEDGER).read_text()
    Path(LEDGER).write_text(last.rstrip("\n"))  # as some editors leave a file
    merge(params, [Answer(("a late one",), ("metal",))])
    assert learned(params)["a late one"] == "metal"
    undo(params)
    undo(params)
    with pytest.raises(DataError, match=r"train.csv: holds no rows"):
        learned(params)


def test_an_answer_to_a_row_in_another_language_is_not_learned(project):
    params = project(count=0, languages="lang", language="en")
    write = [row | {"lang": "en"} for row in rows(2)] + [{"text": "bonjour le monde", "label": "metal", "lang": "fr"}]
    write_jsonl(Path("task/train.jsonl"), write)
    held = [row | {"lang": "en"} for row in rows(2, offset=200)]
    write_jsonl(Path("task/test.jsonl"), held)
    merge(params, [Answer(("bonjour le monde",), ("fruit",))], resolve="mine")
    assert learned(params).keys() == {row["text"] for row in rows(2)}


@pytest.mark.parametrize(
    ("train", "keys", "content"),
    [
        ("train.csv", {"id": "id"}, "id,text,label\n7,one,no\n8,two,no\n9,four,yes\n"),
        ("train.tsv", {"header": False, "text": "0", "label": "1"}, "one\tno\ntwo\tno\nfour\tyes\n"),
        ("train.txt", {"format": "label-first"}, "no one\nno two\nyes four\n"),
        ("train.json#a", {"text": "0", "label": "1"}, '{"a": [["one", "no"], ["two", "no"], ["four", "yes"]]}'),
        ("train.csv", {"kind": "multilabel"}, 'text,label\none,no\ntwo,"no,yes"\nfour,yes\n'),
        ("train.csv", {"kind": "multilabel", "labels": ["no", "yes"]}, "text,no,yes\none,1,0\ntwo,1,1\nfour,0,1\n"),
        ("train.jsonl", {"kind": "pair"}, PAIR % ("one", "no") + PAIR % ("two", "no") + PAIR % ("four", "yes")),
    ],
)
def test_answers_are_read_with_files_of_every_format(project, train, keys, content):
    params = project(count=0, train=train, test=f"of-{train}", **keys)
    file = Path("task") / train.partition("#")[0]
    file.write_text(content)
    held = content.replace("one", "five").replace("two", "six").replace("four", "seven")
    file.with_name(f"of-{file.name}").write_text(held)
    more = ("b",) if keys.get("kind") == "pair" else ()
    merge(params, [Answer(("Two!", *more), ("yes",)), Answer(('"a\rnew, text', *more), ("no",))], resolve="mine")
    assert file.read_text() == content
    expected = {"one": "no", "two": "yes", "four": "yes", '"a\rnew, text': "no"}
    assert labels(params) == expected
    assert learned(params) == expected


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_files_of_answers(project, suffix):
    source = project().data.tasks["things"]
    path = Path(f"a.{suffix}")
    values: list[dict[str, Any]] = [
        {"text": "one", "label": " metal ", "by": "", "time": ""},
        {"text": "two", "label": "", "by": "bob", "time": ""},
        {"text": "three", "label": "fruit", "by": "bob", "time": "2026-01-02"},
    ]
    if suffix == "jsonl":
        write_jsonl(path, values)
    else:
        mark = "," if suffix == "csv" else "\t"
        path.write_text(
            "\n".join([mark.join(values[0]), *(mark.join(row.values()) for row in values)]) + "\n", "utf-8-sig"
        )
    actual, empty = read_answers(path, source, by="ann")
    assert [(answer.fields, answer.labels, answer.by, answer.time) for answer in actual] == [
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


@pytest.mark.parametrize(
    ("label", "written"), [("1.0", "1"), (" 1", "1"), ("cafe\u0301  x", "caf\u00e9 x")], ids=["number", "space", "NFD"]
)
def test_an_answer_names_the_label_of_the_data(project, label, written):
    """A spreadsheet writes 1 as 1.0, and another program the same characters in another form."""
    params = project(test=None)
    classes = ["1", "0"] if written == "1" else ["caf\u00e9 x", "b"]
    table = [json.dumps({"text": f"text {n}", "label": classes[n % 2]}) for n in range(8)]
    Path("task/train.jsonl").write_text("\n".join(table) + "\n")
    Path("a.csv").write_text(f"text,label\none,{label}\n")
    answers, _ = read_answers(Path("a.csv"), params.data.tasks["things"])
    assert merge(params, answers).added == 1
    assert labels(params)["one"] == written


def test_every_label_of_an_answer_names_that_of_the_data(project):
    params = project(test=None, kind="multilabel", label_separator=";")
    Path("task/train.jsonl").write_text("".join(f'{{"text": "text {n}", "label": "{n};3"}}\n' for n in range(3)))
    assert merge(params, [Answer(("one",), ("1.0", "2.0", "3"))]).added == 1
    assert labels(params)["one"] == "1,2,3"


def test_a_copy_of_data_at_an_address_takes_no_labels(project):
    params = project(path="imports/0123abcd/reviews")
    with pytest.raises(DataError, match="is a copy of data at an address, which every run renews"):
        merge(params, [Answer(("new",), ("fruit",))])
