"""Formats, splits, columns and kinds that are guessed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.cli.onboarding.splits import split_files
from components.core.errors import DataError
from components.data.facts import Facts, language_of
from components.data.sampling import Rows, read_rows
from components.data.tasks.kinds import find_kind
from components.data.understanding import text_columns, understand
from components.settings.tasks import TaskSource


def rows(*result: dict[str, Any]) -> Rows:
    return Rows({name: [row.get(name) for row in result] for name in result[0]}, "jsonl")


def table(columns: str, *values: tuple[Any, ...]) -> Rows:
    return rows(*(dict(zip(columns.split(), row, strict=True)) for row in values))


CLASSES = {"kind": "classification", "text": "text", "label": "label"}
NAMES = {"label": "label_name"}


@pytest.mark.parametrize(
    ("name", "text", "form", "columns"),
    [
        ("a.tsv", 'a "good film\t1\nbad\t0\nx\t1\n', "tsv", ["0", "1"]),
        ("a.txt", "id\tsentence_A\n1\tone man\n2\ttwo men\n", "tsv", ["id", "sentence_A"]),
        ("a.csv", 'text, label \n"good, new", 1\nbad, 0\n', "csv", ["text", "label"]),
        # Commas are also punctuation and decimal commas.
        ("a.csv", "text;score\nlate, dear, no;3,5\nfast, good, yes;4,5\n", "csv", ["text", "score"]),
        ("a.tsv", "pos\tfast, good\nneg\tlate, dear\npos\tgood, new\n", "tsv", ["0", "1"]),
        ("a.txt", "__label__a fast, good\n__label__b late, dear\n", "label-first", ["label", "text"]),
        ("a.txt", "x fast, good\ny late, dear\nx good, new\ny bad, old\n", "label-first", ["label", "text"]),
        ("a.txt", "text|label\nfast, good|pos\nlate, dear|neg\n", "csv", ["text", "label"]),
        ("a.txt", "__label__a,fast\n__label__b,late\n__label__a,good\n", "csv", ["0", "1"]),
        ("a.all", "x how many\ny who is\nx how far\ny who was\n", "label-first", ["label", "text"]),
        ("a.tsv", "Jim\tB-PER\nran\tO\n\nhe\tO\nran\tO\n\n", "conll", ["words", "tags"]),
        ("a.tsv", "name\tsex\nJim\tO\n\nEva\tB\n\nTom\tO\n", "tsv", ["name", "sex"]),
        ("a.annotated", "Jim\tB-PER\nran\tO\n\nhe\tO\nran\tO\n\n", "conll", ["words", "tags"]),
    ],
)
def test_formats(tmp_path, name, text, form, columns):
    (tmp_path / name).write_text(text)
    result = read_rows(tmp_path / name)
    assert (result.format, list(result.columns)) == (form, columns)


def test_files_that_hold_no_rows_are_refused(tmp_path):
    (tmp_path / "a.bin").write_text("one two\nthree four five\n")
    with pytest.raises(DataError, match=r"a.bin: the format is not recognised; save it as csv, tsv, jsonl"):
        read_rows(tmp_path / "a.bin")
    (tmp_path / "a.csv").write_text("text,label\n")
    with pytest.raises(DataError, match="a.csv: holds no rows"):
        read_rows(tmp_path / "a.csv")
    with pytest.raises(DataError, match="does not exist; name a labelled file"):
        split_files(tmp_path / "missing")


def test_splits_of_a_folder(tmp_path):
    for name in ("mari_train.csv", "SICK_trial.csv", "en-test.csv", "README.md"):
        (tmp_path / name).write_text("a,b\n")
    names = {split: file.name for split, file in split_files(tmp_path).items()}
    assert names == {"train": "mari_train.csv", "dev": "SICK_trial.csv", "test": "en-test.csv"}
    (tmp_path / "train.csv").write_text("a,b\n")
    with pytest.raises(DataError, match=r"several files may be train \(mari_train.csv, train.csv\)"):
        split_files(tmp_path)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (rows({"text": "good film", "label": "1"}, {"text": "bad", "label": "0"}), CLASSES),
        (
            rows(*({"id": str(n), "body": f"a long text {n}", "mood": "xy"[n % 2]} for n in range(6))),
            CLASSES | {"text": "body", "label": "mood"},
        ),
        (table("text label label_name", *((f"a b c {n}", n % 2, "xy"[n % 2]) for n in range(6))), CLASSES | NAMES),
        (table("text label other", *((f"a b c {n}", n % 2, "xyz"[n % 3]) for n in range(9))), CLASSES),
        # Scripts without spaces: a sentence with a number is no identifier.
        (
            table("no รายละเอียด ประเภท", *((n, f"พัสดุหมายเลข{n}ยังไม่ถึง", "กข"[n % 2]) for n in range(6))),
            {"kind": "classification", "text": "รายละเอียด", "label": "ประเภท"},
        ),
        (
            table("no 内容 種類", *((n, f"{n}日に注文した荷物が届きません", "ab"[n % 2]) for n in range(6))),
            {"kind": "classification", "text": "内容", "label": "種類"},
        ),
        (
            table("premise hypothesis label", ("a", "b", "yes"), ("c", "d", "no")),
            {"kind": "pair", "first": "premise", "second": "hypothesis", "label": "label"},
        ),
        (
            table("sentence1 sentence2 label", ("a", "b", 4.5), ("c", "d", 1.0)),
            {"kind": "similarity", "first": "sentence1", "second": "sentence2", "score": "label"},
        ),
        (table("text score", ("a b", 0.25), ("c d", 3.5)), {"kind": "regression", "text": "text", "score": "score"}),
        # Signs of percent and currencies stand beside numbers.
        (
            table("text score", *((f"a {n}", f"{7 * n}%") for n in range(25))),
            {"kind": "regression", "text": "text", "score": "score"},
        ),
        (
            table("text price score", *((f"a {n}", "x", f"$1,{200 + n}.50") for n in range(8))),
            {"kind": "regression", "text": "text", "score": "score"},
        ),
        (
            table("text score", *((f"a {n}", f"{n},5 \u20ac") for n in range(8))),
            {"kind": "regression", "text": "text", "score": "score"},
        ),
        (table("text label", ("a", ["x", "y"]), ("b", [])), CLASSES | {"kind": "multilabel"}),
        (
            rows(*({"text": f"t {n}", "label": ["x;y", "x", "y", "y;x"][n % 4]} for n in range(8))),
            CLASSES | {"kind": "multilabel", "label_separator": ";"},
        ),
        (
            rows(*({"text": f"t {n}", "label": ["<x><y> ", "<x>", "<y>", " <y><x>"][n % 4]} for n in range(8))),
            CLASSES | {"kind": "multilabel", "label_separator": "><"},
        ),
        (
            rows(*({"text": f"t {n}", "label": ["|x|y|", "|x|", "|y|", "|y|x|"][n % 4]} for n in range(8))),
            CLASSES | {"kind": "multilabel", "label_separator": "|"},
        ),
        # Labels that spaces separate are also alone; names of several words are not.
        (
            rows(*({"text": f"t {n}", "label": ["x y", "x", "y", "z", "z y"][n % 5]} for n in range(10))),
            CLASSES | {"kind": "multilabel", "label_separator": " "},
        ),
        (rows(*({"text": f"t {n}", "label": ["new york", "york", "rome"][n % 3]} for n in range(9))), CLASSES),
        # A column of languages is a label if there is no other one.
        (
            table("text queue lang", *((f"a b {n}", "xyz"[n % 3], "ab"[n % 2]) for n in range(9))),
            CLASSES | {"label": "queue"},
        ),
        (table("text lang", *((f"a b {n}", "ab"[n % 2]) for n in range(9))), CLASSES | {"label": "lang"}),
        # A label of one row is no reason to take the labels of a row for one.
        (
            rows(
                *(
                    {"text": f"t {n}", "label": ["x;y", "x", "y", "z;x", "y;z", "rare;x"][n % 5 + n // 20]}
                    for n in range(21)
                )
            ),
            CLASSES | {"kind": "multilabel", "label_separator": ";"},
        ),
        (
            table("text toxic rude", ("a b c", "1", "0"), ("d e f", "0", "1")),
            {"kind": "multilabel", "text": "text", "labels": ["toxic", "rude"]},
        ),
        (
            table("text toxic rude", ("a b c", "x", ""), ("d e f", "", "X"), ("g", "", "")),
            {"kind": "multilabel", "text": "text", "labels": ["toxic", "rude"]},
        ),
        (
            table("tokens ner_tags", (["Jim", "ran"], ["B-PER", "O"])),
            {"kind": "tagging", "words": "tokens", "tags": "ner_tags", "scheme": "bio"},
        ),
        (
            table("words tags", (["a", "b"], ["DET", "NOUN"])),
            {"kind": "tagging", "words": "words", "tags": "tags", "scheme": "none"},
        ),
        (
            table("question context answers", ("q", "c", {})),
            {"kind": "questions", "question": "question", "context": "context", "answers": "answers"},
        ),
        (
            table("question choices answer", ("q", ["a", "b"], "B")),
            {"kind": "choice", "text": "question", "choices": "choices", "label": "answer", "answer": "letter"},
        ),
    ],
)
def test_kinds_and_columns(result, expected):
    assert understand(result).keys == expected


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"id": 1, "fields": {"body": "a b c", "tag": "x"}},
            r"no column holds text \(columns: 'id', 'fields'; 'fields' holds objects with 'body', 'tag': write these "
            r"as columns\); name it with text",
        ),
        (
            {"text": "a b c", **{f"c{n}": "x y z" for n in range(30)}, "empty": ""},
            r"no column looks like a label \(columns: 'text', 'c0', .*'c18' and 12 more; 'empty' without values\)",
        ),
    ],
)
def test_columns_are_named_in_words(row, message):
    with pytest.raises(DataError, match=message):
        understand(rows(row, row))


def test_another_column_of_text_can_be_read_too():
    """Few subjects repeat; they are no labels."""
    subjects = [f"about my order {n % 30}" for n in range(90)]
    bodies = [f"a long text {n} of mine" for n in range(90)]
    columns = {"subject": subjects, "body": bodies, "queue": ["x", "y", "z"] * 30}
    table = rows(*({name: values[n] for name, values in columns.items()} for n in range(90)))
    note = "column 'body' is the text, 'queue' is the label; 'subject' may also be the text (--text"
    assert understand(table).reasons == [f"{note}; --text body,subject reads both)"]
    assert understand(table, text=["body"], label="queue", kind="multilabel").reasons == [f"{note})"]
    both = {"kind": "pair", "first": "body", "second": "subject", "label": "queue"}
    assert understand(table, text=("body", "subject"), label="queue").keys == both


@pytest.mark.parametrize(
    ("value", "column"),
    [
        ("2024/01/02 3:04:05 PM GMT+7", "text"),
        ("Mon Apr 06 22:19:45 PDT 2009", "text"),
        ("2024-01-01T10:00:00.000+00:00", "text"),
        ("Jan 5, 2024, a Friday", "when"),
        ("1" * 50_000 + " x", "when"),
    ],
)
def test_dates_are_no_texts(value, column):
    assert text_columns(Rows({"text of it": ["a b c"] * 4, "when": [value] * 4}))[0].split()[0] == column


def test_a_column_of_splits_is_named():
    columns = {
        "text": ["a b c"] * 8,
        "label": ["x", "y"] * 4,
        "part": ["Train", "test"] * 4,
        "other": ["a", "test"] * 4,
    }
    assert understand(Rows(columns)).reasons[1:] == [
        "warning: column 'part' names the split of each row (test, train), and is not used; write a file for each "
        "split, such as train.csv and test.csv in one folder"
    ]


@pytest.mark.parametrize("value", ["['B-PER', 'O']", '["B-PER", "O"]', "['B-PER' 'O']"])
def test_lists_of_tags_as_text_are_refused(value):
    with pytest.raises(
        DataError, match="column 'tags' has lists of tags as text .* save the table as parquet or jsonl"
    ):
        understand(table("tokens tags", *(("['Jim', 'ran']", value) for _ in range(4))))


def test_a_few_rows_with_a_label_are_enough():
    """Most rows of a file may wait for a label; a filled column with another name of a label comes first."""
    few = [(f"the text of message {number}", "web", ["a", "b", None][min(number, 2)]) for number in range(30)]
    assert understand(table("text source label", *few)).keys == CLASSES
    assert understand(table("text label category", *few)).keys == CLASSES
    single = [(text, source, None if label == "b" else label) for text, source, label in few]
    with pytest.raises(DataError, match="no column looks like a label"):
        understand(table("text source label", *single))


def test_columns_can_be_named_and_others_are_mentioned():
    table = rows(*({"text": f"t {n}", "note": f"n {n}", "action": "ab"[n % 2], "place": "cd"[n % 2]} for n in range(8)))
    meant = understand(table)
    assert (meant.keys["label"], meant.others) == ("action", ["place"])
    assert meant.reasons == [
        "column 'text' is the text, 'action' is the label; 'place' may also be the label (--label)"
    ]
    assert understand(table, text=["note"], label="place").keys == {
        "kind": "classification",
        "text": "note",
        "label": "place",
    }
    with pytest.raises(DataError, match="no column 'x'; the columns are 'text', 'note', 'action', 'place'"):
        understand(table, label="x")
    with pytest.raises(DataError, match="no column looks like a label"):
        understand(rows({"text": "a"}, {"text": "b"}))


def test_facts(tmp_path):
    train = [
        ("the cat sat", "x"),
        ("The cat sat!", "y"),
        ("a dog ran", "y"),
        ("it is late", "y"),
        ("shared", "x"),
        (" ", "x"),
    ]
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in train))
    (tmp_path / "test.csv").write_text("text,label\nshared,x\nanother one,y\n")
    source = TaskSource(path=str(tmp_path), train="train.csv", dev=None, test="test.csv", empty="drop")
    facts = Facts("classification", find_kind("classification").read("mood", source))
    assert facts.rows == {"train": 4, "dev": 0, "test": 2}
    assert facts.classes == {"y": 3, "x": 1}
    assert facts.lines()[-4:] == [
        "warning: 1 row(s) have no text; they are dropped",
        "warning: 1 row(s) of train repeat an earlier text",
        "warning: 1 text(s) of train have different labels; correct them where one is wrong",
        "warning: 1 row(s) of train are also in a later split; dropped from train",
    ]


def test_languages():
    assert language_of(["ผมไปจ่ายเงิน", "เมื่อวาน"]) == "th"
    assert language_of(["the price of it is what"]) == "en"
    assert language_of(["das ist nicht der Fall und ich"]) == "de"
    assert language_of(["私は行きます", "日本語です"]) == "ja"
    assert language_of(["中文句子"]) == "zh"
    assert language_of(["xyzzy"]) == "en"


def test_folders_of_parallel_files_are_splits(tmp_path):
    for split, count in (("train", 3), ("valid", 1), ("test", 1)):
        (tmp_path / split).mkdir()
        for name, line in (("seq.in", "play some jazz"), ("seq.out", "O O B-very-long-genre"), ("label", "PlayMusic")):
            (tmp_path / split / name).write_text(f"{line}\n" * count)
    files = split_files(tmp_path)
    assert {split: file.name for split, file in files.items()} == {"train": "train", "dev": "valid", "test": "test"}
    result = read_rows(files["train"])
    assert (result.format, result.columns["label"]) == ("parallel", ["PlayMusic"] * 3)
    assert understand(result).keys == {"kind": "classification", "text": "seq.in", "label": "label"}
    tagged = {"kind": "tagging", "words": "seq.in", "tags": "seq.out", "scheme": "bio"}
    for given in ({}, {"text": ["seq.in"], "label": "seq.out"}):
        assert understand(result, kind="tagging", **given).keys == tagged
    with pytest.raises(DataError, match="no column holds tags .*; name them with label"):
        understand(rows({"text": "a b", "label": "x"}), kind="tagging")
    (tmp_path / "train/label").write_text("PlayMusic\n")
    with pytest.raises(DataError, match=r"is no folder of parallel files, .* \(label: 1 lines, seq.in: 3 lines"):
        read_rows(files["train"])


def test_members_of_a_json_document_are_splits(tmp_path):
    path = tmp_path / "data_full.json"
    content = {
        "oos_val": [["x", "oos"]],
        "val": [["a", "b"]],
        "train": [["hello there", "hi"]] * 2,
        "test": [["c", "d"]],
    }
    path.write_text(json.dumps(content))
    files = split_files(path)
    assert {split: file.name for split, file in files.items()} == {
        "train": "data_full.json#train",
        "dev": "data_full.json#val",
        "test": "data_full.json#test",
    }
    result = read_rows(files["train"])
    assert (result.format, {**result.columns}) == ("json", {"0": ["hello there"] * 2, "1": ["hi"] * 2})
    path.write_text(json.dumps({"banking": ["balance"], "rows": [["a", "b"]]}))
    assert split_files(path) == {"train": path}
    with pytest.raises(DataError, match=r"is no list of rows; name one of its members \(rows\)"):
        read_rows(path)


@pytest.mark.parametrize(
    ("column", "values", "chosen"),
    [
        ("customer", 40, True),
        ("threadId", 30, True),
        ("AUTHOR_NAME", 12, True),
        ("id", 200, False),  # a row each
        ("customer", 3, False),  # few values
        ("city", 40, False),  # no name of a group
    ],
)
def test_a_group_column_has_many_values_with_several_rows(column, values, chosen):
    table = [{"text": f"text {row} of many", "label": "ab"[row % 2], column: f"v{row % values}"} for row in range(200)]
    result = understand(rows(*table)).group
    assert (result and result[0]) == (column if chosen else None)
    assert result is None or f": {values} values, {200 / values:.1f} rows each, which" in result[1]
