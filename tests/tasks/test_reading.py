"""Labelled texts, pairs and choices in every format: exact rows of small files, and each wrong input with its
message."""

from __future__ import annotations

import json
import re

import pytest

from components.core.errors import DataError
from components.data.tasks.examples import digest
from tests.tasks.labelled import jsonl, read, targets, three

# classification


def test_csv_without_a_header_and_rows_with_ids(tmp_path):
    for split, word in (("train", "good"), ("dev", "fair"), ("test", "poor")):
        (tmp_path / f"{split}.tsv").write_text(f'{word} film\t1\t{split}-1\na {word} "play\t0\t{split}-2\n')
    names = {split: f"{split}.tsv" for split in ("train", "dev", "test")}
    data = read("classification", tmp_path, **names, text=0, label=1, id=2, header=False)
    assert data.labels == ["0", "1"]
    assert data.test.fields == [("poor film",), ('a poor "play',)]
    assert targets(data.test) == [[1], [0]]
    assert (data.test.ids, data.test.lines) == (["test-1", "test-2"], [1, 2])


def test_labels_before_texts_in_latin_1_with_a_share_of_train_as_dev(tmp_path):
    lines = [f"{number % 3} Where is café {number} ?" for number in range(60)]
    (tmp_path / "T.train").write_bytes("\n".join(lines).encode("latin-1"))
    (tmp_path / "T.test").write_bytes(b"2 Who ?\n")
    data = read(
        "classification",
        tmp_path,
        format="label-first",
        encoding="latin-1",
        train="T.train",
        dev=None,
        selection="dev",
        test="T.test",
    )
    assert len(data.train) + len(data.dev) == 60 and len(data.dev) > 2
    assert data.train.fields[0][0].startswith("Where is café")
    assert data.test.ids == ["T.test:1"]


def test_several_members_of_one_json_document_are_concatenated(tmp_path):
    document = {
        "train": [["book a table", "eat"], ["book a flight", "travel"]],
        "oos_train": [["sing", "oos"]],
        "val": [["a flight", "travel"]],
        "test": [["a table", "eat"], ["hum", "oos"]],
    }
    (tmp_path / "data.json").write_text(json.dumps(document))
    data = read(
        "classification",
        tmp_path,
        train=["data.json#train", "data.json#oos_train"],
        dev="data.json#val",
        test="data.json#test",
        text=0,
        label=1,
    )
    assert data.labels == ["eat", "oos", "travel"]
    assert data.train.fields == [("book a table",), ("book a flight",), ("sing",)]
    assert data.train.ids == ["data.json#train:1", "data.json#train:2", "data.json#oos_train:1"]
    with pytest.raises(DataError) as caught:
        read("classification", tmp_path, train="data.json#train", dev=None, test="data.json#test", text=0, label=1)
    assert str(caught.value) == (
        f"{tmp_path}/data.json#test, row 2: label 'oos' does not occur in data.json#train; correct it, or add examples "
        "of it to data.json#train"
    )


def test_rows_of_no_class_are_kept_in_test_only(tmp_path):
    def rows(split):
        return [{"text": f"{label} {split}", "label": label, "part": "p"} for label in ("a", "b", "none")]

    for split in ("train", "dev", "test"):
        jsonl(tmp_path / f"{split}.jsonl", *rows(split))
    data = read("classification", tmp_path, outside="none", slice="part")
    assert data.labels == ["a", "b"]
    assert [targets(split) for split in (data.train, data.dev, data.test)] == [[[0], [1]]] * 2 + [[[0], [1], [-1]]]
    assert data.test.slices == ["p", "p", None]
    assert (data.counts["outside_rows"], data.counts["train_rows_outside"]) == (1, 1)
    assert digest(data.test, data.labels) != digest(data.test.take([0, 1, 1]), data.labels)
    with pytest.raises(DataError, match=r"no row of test has the label 'nil'; check data\.tasks\.things\.outside"):
        read("classification", tmp_path, outside="nil")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": " ", "label": "a"}, r"line 1: the text \('text'\) is empty; remove the row or fill it in"),
        ({"text": "a\0b", "label": "a"}, r"line 1: the text \('text'\) contains a NUL character; remove it"),
        ({"text": "x", "label": None}, r"line 1: the label \('label'\) is missing; remove the row, label it"),
        ({"text": "x", "label": " "}, r"line 1: the label \('label'\) is missing"),
        ({"text": "x", "lable": "a"}, r"line 1: no column 'label'; did you mean 'lable'\?; name the column in params"),
        ({"text": ["x"], "label": "a"}, r"line 1: holds a list where text is expected"),
    ],
)
def test_rows_without_text_or_label(tmp_path, row, message):
    three(tmp_path, row)
    with pytest.raises(DataError, match=rf"train\.jsonl, {message}"):
        read("classification", tmp_path)


def test_rows_without_a_label_can_be_left_out(tmp_path):
    for split in ("train", "dev", "test"):
        rows = [{"text": f"{split} {label}", "label": label} for label in ("a", "b")]
        jsonl(tmp_path / f"{split}.jsonl", *rows)
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write('{"text": "open", "label": null}\n{"text": "empty", "label": " "}\n')
    data = read("classification", tmp_path, no_label="drop")
    assert (len(data.train), data.counts["train_rows_without_label"]) == (2, 2)
    with (tmp_path / "test.jsonl").open("a") as file:
        file.write('{"text": "open", "label": null}\n')
    data = read("classification", tmp_path, no_label="drop")
    assert (len(data.test), data.counts["test_rows_without_label"]) == (2, 1)


def test_duplicate_ids(tmp_path):
    three(tmp_path, *({"id": number % 3, "text": f"text {number}", "label": number % 2} for number in range(5)))
    message = (
        f"{tmp_path}/train.jsonl, line 4: id '0' is also on line 1 (2 row(s) repeat an id); "
        "make the ids distinct, or name no id column"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        read("classification", tmp_path, id="id")
    for number, name in enumerate(("first", "second")):
        jsonl(tmp_path / f"{name}.jsonl", {"id": "a", "text": f"text {number}", "label": number})
    with pytest.raises(DataError, match=rf"second\.jsonl, line 1: id 'a' is also on {tmp_path}/first\.jsonl, line 1"):
        read("classification", tmp_path, train=["first.jsonl", "second.jsonl"], test="first.jsonl", id="id", dev=None)


def test_empty_splits(tmp_path):
    three(tmp_path, {"text": "x", "label": "a"}, {"text": "y", "label": "b"})
    (tmp_path / "none.csv").write_text("text,label\n")
    with pytest.raises(DataError, match=r"none\.csv: holds no rows"):
        read("classification", tmp_path, test="none.csv")
    with pytest.raises(DataError, match=r"more\.jsonl: does not exist; the splits are named under data\.tasks"):
        read("classification", tmp_path, train=["train.jsonl", "more.jsonl"])


# several labels a text


def test_several_labels_in_one_column(tmp_path):
    jsonl(tmp_path / "train.jsonl", {"text": "x", "label": ["b", "a"]}, {"text": "y", "label": "c, a,"})
    jsonl(tmp_path / "dev.jsonl", {"text": "z", "label": None})
    jsonl(tmp_path / "test.jsonl", {"text": "w", "label": ""}, {"text": "v", "label": "c"})
    data = read("multilabel", tmp_path)
    assert data.labels == ["a", "b", "c"]
    assert [targets(split) for split in (data.train, data.dev, data.test)] == [[[0, 1], [0, 2]], [[]], [[], [2]]]
    jsonl(tmp_path / "test.jsonl", {"text": "w", "label": "c,d"})
    with pytest.raises(DataError, match=r"test\.jsonl, line 1: label 'd' does not occur in train\.jsonl"):
        read("multilabel", tmp_path)


def test_a_column_for_each_label(tmp_path):
    (tmp_path / "train.csv").write_text("text,rude,kind\n" + "".join(f"x{n},{n % 2},{n % 3 % 2}\n" for n in range(20)))
    (tmp_path / "test.csv").write_text("text,rude,kind\nw,1,0\n")
    names = {"train": "train.csv", "dev": None, "test": "test.csv", "overlap": "report"}
    data = read("multilabel", tmp_path, labels=["rude", "kind"], **names)
    assert data.labels == ["kind", "rude"] and targets(data.test) == [[1]]
    (tmp_path / "test.csv").write_text("text,rude,kind\nw,1,2\n")
    with pytest.raises(DataError, match=r"line 2: column 'kind' holds '2'; a column of labels holds 0 or 1"):
        read("multilabel", tmp_path, labels=["rude", "kind"], **names)
    (tmp_path / "test.csv").write_text("text,rude,kind\nw,0,0\n")
    (tmp_path / "train.csv").write_text("text,rude,kind\nx,0,0\n")
    with pytest.raises(DataError, match=r"train\.csv: no row has a label; check data\.tasks\.things\.label"):
        read("multilabel", tmp_path, labels=["rude", "kind"], **names)


# pairs


MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"


def test_pairs_with_a_byte_order_mark_and_literal_quotes(tmp_path):
    for number, split in enumerate(("train", "val", "test")):
        rows = f'1\t1\t2\tHe said "yes {number}.\t"Yes," he said.\r\n0\t3\t4\tA {number}\tB\r\n'
        (tmp_path / f"{split}.tsv").write_text(MRPC + rows, newline="")
    names = {"train": "train.tsv", "dev": "val.tsv", "test": "test.tsv"}
    columns = {"first": "#1 String", "second": "#2 String", "label": "Quality"}
    data = read("pair", tmp_path, **names, **columns)
    assert data.labels == ["0", "1"]
    assert data.train.fields == [('He said "yes 0.', '"Yes," he said.'), ("A 0", "B")]
    assert targets(data.train) == [[1], [0]]
    (tmp_path / "test.tsv").write_text(MRPC + "1\t1\t2\tHere\t \n", newline="")
    with pytest.raises(DataError, match=r"test\.tsv, line 2: the second text \('#2 String'\) is empty; remove the row"):
        read("pair", tmp_path, **names, **columns)
    with pytest.raises(DataError, match=r"no column '#1 Strin'; did you mean '#1 String'\?"):
        read("pair", tmp_path, **names, **{**columns, "first": "#1 Strin"})


def test_duplicate_pairs_agree_in_both_texts(tmp_path):
    jsonl(
        tmp_path / "train.jsonl",
        {"first": "a", "second": "b", "label": 1},
        {"first": "a", "second": "c", "label": 0},
        {"first": "a b", "second": "c", "label": 1},
    )
    jsonl(tmp_path / "dev.jsonl", {"first": "d", "second": "b", "label": 1})
    jsonl(tmp_path / "test.jsonl", {"first": "A!", "second": "c.", "label": 1})
    data = read("pair", tmp_path, overlap="report")
    assert data.counts == {"train_rows_in_later_splits": 1, "dev_rows_in_later_splits": 0}
    with pytest.raises(DataError) as caught:
        read("pair", tmp_path, overlap="refuse")
    assert str(caught.value) == (
        f"{tmp_path}: 1 row(s) of train and dev are also in a later split, the first in train (line 2): 'a | c'; "
        "remove them, or set data.tasks.things.overlap to drop or report"
    )


@pytest.mark.parametrize(
    ("kind", "texts"), [("similarity", [("first", "second")] * 2), ("regression", [("text",)] * 2)]
)
def test_numbers(tmp_path, kind, texts):
    def write(*scores, text="a"):
        three(tmp_path, *({name: f"{text}{n}" if text.strip() else text for name in texts[n]} | {"score": score}
                          for n, score in enumerate(scores)))  # fmt: skip

    write(4.5, "-1e2")
    data = read(kind, tmp_path, overlap="report")
    assert (data.labels, targets(data.train)) == ([], [[4.5], [-100.0]])
    assert data.train.fields[0] == ("a0",) * len(texts[0])
    for value in ("high", None, "nan", "inf"):
        write(value, 2)
        problem = "is missing; fill it in" if value is None else f"is {value!r}, not a number; correct it"
        with pytest.raises(DataError, match=rf"line 1: the score \('score'\) {problem}"):
            read(kind, tmp_path)
    write(1, 1.0)
    with pytest.raises(DataError, match=r"train\.jsonl: all scores are 1; check data\.tasks\.things\.score"):
        read(kind, tmp_path)
    write(1, 2, text=" ")
    with pytest.raises(DataError, match=r"line 1: the (first )?text \('\w+'\) is empty"):
        read(kind, tmp_path)
    if kind == "regression":
        with pytest.raises(ValueError, match="key first does not fit kind regression"):
            read(kind, tmp_path, first="text")


# choices


def test_choices_in_columns_and_in_a_list(tmp_path):
    (tmp_path / "train.csv").write_text("ctx,e0,e1,right\nIt rains,so we run,so we fly,1\nIt snows,we ski,we swim,0\n")
    jsonl(tmp_path / "test.jsonl", {"ctx": "2 + 2", "e": ["3", "4", "5"], "right": "B"})
    both = {"text": "ctx", "label": "right", "overlap": "report"}
    data = read("choice", tmp_path, train="train.csv", dev="train.csv", test="train.csv", choices=["e0", "e1"], **both)
    assert data.train.fields[0] == ("It rains", "so we run", "so we fly") and targets(data.train) == [[1], [0]]
    files = {"train": "test.jsonl", "dev": "test.jsonl", "test": "test.jsonl", "choices": "e", **both}
    assert targets(read("choice", tmp_path, answer="letter", **files).train) == [[1]]
    jsonl(tmp_path / "test.jsonl", {"ctx": "2 + 2", "e": ["3", "4", "5"], "right": 3})
    assert targets(read("choice", tmp_path, answer="from_one", **files).train) == [[2]]
    assert targets(read("choice", tmp_path, answer="text", **files).train) == [[0]]
    with pytest.raises(DataError) as caught:
        read("choice", tmp_path, **files)
    with pytest.raises(DataError, match="label 'ß' does not identify one of the 3 choices"):
        jsonl(tmp_path / "train.jsonl", {"ctx": "2 + 2", "e": ["3", "4", "5"], "right": "ß"})
        read("choice", tmp_path, answer="letter", **files | {"train": "train.jsonl"})
    assert str(caught.value) == (
        f"{tmp_path}/test.jsonl, line 1: label '3' does not identify one of the 3 choices (answer: from_zero); "
        "correct it, or set answer to from_zero, from_one, letter or text"
    )


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (["one"], r"line 1: 1 choice\(s\), expected two or more"),
        (["one", ""], r"line 1: a choice \('choices'\) is empty"),
        ("one, two", "line 1: 'choices' holds no list of choices; set choices to a list of columns"),
    ],
)
def test_invalid_choices(tmp_path, choices, message):
    three(tmp_path, {"text": "x", "choices": choices, "label": 0})
    with pytest.raises(DataError, match=rf"train\.jsonl, {message}"):
        read("choice", tmp_path)


def test_parallel_files_as_texts_with_labels(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "seq.in").write_text(f"play {split}\nrate {split} \n")
        (tmp_path / split / "label").write_text("Play\nRate\n")
    data = read("classification", tmp_path, train="train", dev="valid", test="test", text="seq.in")
    assert data.labels == ["Play", "Rate"]
    assert data.dev.fields == [("play valid",), ("rate valid ",)]
