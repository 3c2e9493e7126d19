"""Labelled data of every kind in every format: exact rows of small files, and each wrong input with its message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.config import TaskSource
from components.errors import DataError
from components.finetuning.examples import digest
from components.finetuning.tasks.base import Examples, Split
from components.finetuning.tasks.reading import (
    read_choices,
    read_classification,
    read_multilabel,
    read_pairs,
    read_questions,
    read_similarities,
    read_tagging,
)

READ = {
    "classification": read_classification,
    "multilabel": read_multilabel,
    "pair": read_pairs,
    "similarity": read_similarities,
    "tagging": read_tagging,
    "questions": read_questions,
    "choice": read_choices,
}


def read(kind: str, folder: Path, **source: Any) -> Examples:
    return READ[kind]("things", TaskSource(path=str(folder), kind=kind, **source))


def jsonl(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def three(folder: Path, *rows: dict[str, Any]) -> None:
    """The same rows as train, dev and test, so that only what a test is about is wrong."""
    for split in ("train", "dev", "test"):
        jsonl(folder / f"{split}.jsonl", *rows)


def targets(split: Split) -> list[list[float]]:
    return [target.tolist() for target in split.targets]


# classification


def test_csv_without_a_header_and_rows_with_ids(tmp_path: Path) -> None:
    for split, word in (("train", "good"), ("dev", "fair"), ("test", "poor")):
        (tmp_path / f"{split}.tsv").write_text(f'{word} film\t1\t{split}-1\na {word} "play\t0\t{split}-2\n')
    names = {split: f"{split}.tsv" for split in ("train", "dev", "test")}
    found = read("classification", tmp_path, **names, text=0, label=1, id=2, header=False)
    assert found.labels == ["0", "1"]
    assert found.test.fields == [("poor film",), ('a poor "play',)]
    assert targets(found.test) == [[1], [0]]
    assert (found.test.ids, found.test.lines) == (["test-1", "test-2"], [1, 2])


def test_labels_before_texts_in_latin_1_with_a_share_of_train_as_dev(tmp_path: Path) -> None:
    lines = [f"{number % 3} Where is café {number} ?" for number in range(60)]
    (tmp_path / "T.train").write_bytes("\n".join(lines).encode("latin-1"))
    (tmp_path / "T.test").write_bytes(b"2 Who ?\n")
    found = read(
        "classification",
        tmp_path,
        format="label-first",
        encoding="latin-1",
        train="T.train",
        dev=None,
        dev_share=0.3,
        test="T.test",
    )
    assert len(found.train) + len(found.dev) == 60 and len(found.dev) > 5
    assert found.train.fields[0][0].startswith("Where is café")
    assert found.test.ids == ["T.test:1"]


def test_members_of_one_json_document_several_of_them_one_after_the_other(tmp_path: Path) -> None:
    document = {
        "train": [["book a table", "eat"], ["book a flight", "travel"]],
        "oos_train": [["sing", "oos"]],
        "val": [["a flight", "travel"]],
        "test": [["a table", "eat"], ["hum", "oos"]],
    }
    (tmp_path / "data.json").write_text(json.dumps(document))
    found = read(
        "classification",
        tmp_path,
        train=["data.json#train", "data.json#oos_train"],
        dev="data.json#val",
        test="data.json#test",
        text=0,
        label=1,
    )
    assert found.labels == ["eat", "oos", "travel"]
    assert found.train.fields == [("book a table",), ("book a flight",), ("sing",)]
    assert found.train.ids == ["data.json#train:1", "data.json#train:2", "data.json#oos_train:1"]
    with pytest.raises(DataError) as caught:
        read("classification", tmp_path, train="data.json#train", dev=None, test="data.json#test", text=0, label=1)
    assert str(caught.value) == (
        f"{tmp_path}/data.json#test, row 2: label 'oos' does not occur in data.json#train; correct it, or add examples "
        "of it to data.json#train"
    )


def test_what_belongs_to_no_class_is_for_test_alone(tmp_path: Path) -> None:
    def rows(split: str) -> list[dict[str, str]]:
        return [{"text": f"{label} {split}", "label": label, "part": "p"} for label in ("a", "b", "none")]

    for split in ("train", "dev", "test"):
        jsonl(tmp_path / f"{split}.jsonl", *rows(split))
    found = read("classification", tmp_path, outside="none", slice="part")
    assert found.labels == ["a", "b"]
    assert [targets(split) for split in (found.train, found.dev, found.test)] == [[[0], [1]]] * 2 + [[[0], [1], [-1]]]
    assert found.test.slices == ["p", "p", None]
    assert (found.counts["outside_rows"], found.counts["train_rows_outside"]) == (1, 1)
    assert digest(found.test, found.labels) != digest(found.test.take([0, 1, 1]), found.labels)
    with pytest.raises(DataError, match=r"no row of test has the label 'nil'; check data\.tasks\.things\.outside"):
        read("classification", tmp_path, outside="nil")


def test_parallel_files_as_texts_with_labels(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "seq.in").write_text(f"play {split}\nrate {split} \n")
        (tmp_path / split / "label").write_text("Play\nRate\n")
    found = read("classification", tmp_path, train="train", dev="valid", test="test", text="seq.in")
    assert found.labels == ["Play", "Rate"]
    assert found.dev.fields == [("play valid",), ("rate valid ",)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": " ", "label": "a"}, r"line 1: the text \('text'\) is empty; remove the row or fill it in"),
        ({"text": "x", "label": None}, r"line 1: the label \('label'\) is missing; remove the row or label it"),
        ({"text": "x", "label": " "}, r"line 1: the label \('label'\) is missing"),
        ({"text": "x", "lable": "a"}, r"line 1: no column 'label'; did you mean 'lable'\?; name the column in params"),
        ({"text": ["x"], "label": "a"}, r"line 1: holds a list where text is expected"),
    ],
)
def test_rows_without_text_or_label(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    three(tmp_path, row)
    with pytest.raises(DataError, match=rf"train\.jsonl, {message}"):
        read("classification", tmp_path)


def test_ids_that_stand_twice_in_a_split(tmp_path: Path) -> None:
    rows = [{"id": number % 3, "text": f"text {number}", "label": number % 2} for number in range(5)]
    three(tmp_path, *rows)
    with pytest.raises(DataError) as caught:
        read("classification", tmp_path, id="id")
    assert str(caught.value) == (
        f"{tmp_path}/train.jsonl, line 4: id '0' stands on line 1 too (2 row(s) repeat an id); "
        "ids have to differ, or name no id column"
    )


def test_an_id_that_stands_in_two_files_of_a_split(tmp_path: Path) -> None:
    for number, name in enumerate(("first", "second")):
        jsonl(tmp_path / f"{name}.jsonl", {"id": "a", "text": f"text {number}", "label": number})
    with pytest.raises(
        DataError, match=rf"second\.jsonl, line 1: id 'a' stands on {tmp_path}/first\.jsonl, line 1 too"
    ):
        read("classification", tmp_path, train=["first.jsonl", "second.jsonl"], test="first.jsonl", id="id", dev=None)


def test_documents_of_one_character_and_of_a_megabyte(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", {"text": "a", "label": "x"}, {"text": "?", "label": "y"})
    jsonl(tmp_path / "dev.jsonl", {"text": "ก", "label": "x"})
    jsonl(tmp_path / "test.jsonl", {"text": "word " * 200_000, "label": "x"})
    found = read("classification", tmp_path)
    assert found.train.fields == [("a",), ("?",)] and len(found.test.fields[0][0]) == 1_000_000
    (tmp_path / "test.csv").write_text('text,label\n"' + "word, " * 200_000 + '",x\n')
    assert len(read("classification", tmp_path, test="test.csv").test.fields[0][0]) == 1_200_000


def test_splits_that_hold_nothing(tmp_path: Path) -> None:
    three(tmp_path, {"text": "x", "label": "a"}, {"text": "y", "label": "b"})
    (tmp_path / "none.csv").write_text("text,label\n")
    with pytest.raises(DataError, match=r"none\.csv: holds no rows"):
        read("classification", tmp_path, test="none.csv")
    with pytest.raises(DataError, match=r"more\.jsonl: does not exist; the splits are named under data\.tasks"):
        read("classification", tmp_path, train=["train.jsonl", "more.jsonl"])


# several labels a text


def test_several_labels_in_one_column(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", {"text": "x", "label": ["b", "a"]}, {"text": "y", "label": "c, a,"})
    jsonl(tmp_path / "dev.jsonl", {"text": "z", "label": None})
    jsonl(tmp_path / "test.jsonl", {"text": "w", "label": ""}, {"text": "v", "label": "c"})
    found = read("multilabel", tmp_path)
    assert found.labels == ["a", "b", "c"]
    assert [targets(split) for split in (found.train, found.dev, found.test)] == [[[0, 1], [0, 2]], [[]], [[], [2]]]
    jsonl(tmp_path / "test.jsonl", {"text": "w", "label": "c,d"})
    with pytest.raises(DataError, match=r"test\.jsonl, line 1: label 'd' does not occur in train\.jsonl"):
        read("multilabel", tmp_path)


def test_a_column_for_each_label(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,rude,kind\n" + "".join(f"x{n},{n % 2},{n % 3 % 2}\n" for n in range(20)))
    (tmp_path / "test.csv").write_text("text,rude,kind\nw,1,0\n")
    names = {"train": "train.csv", "dev": None, "test": "test.csv", "dev_share": 0.4, "overlap": "report"}
    found = read("multilabel", tmp_path, labels=["rude", "kind"], **names)
    assert found.labels == ["kind", "rude"] and targets(found.test) == [[1]]
    (tmp_path / "test.csv").write_text("text,rude,kind\nw,1,2\n")
    with pytest.raises(DataError, match=r"line 2: column 'kind' holds '2'; a column of labels holds 0 or 1"):
        read("multilabel", tmp_path, labels=["rude", "kind"], **names)
    (tmp_path / "test.csv").write_text("text,rude,kind\nw,0,0\n")
    (tmp_path / "train.csv").write_text("text,rude,kind\nx,0,0\n")
    with pytest.raises(DataError, match=r"train\.csv: no row has a label; check data\.tasks\.things\.label"):
        read("multilabel", tmp_path, labels=["rude", "kind"], **names)


# pairs


MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"


def test_pairs_with_a_byte_order_mark_and_quotes_that_mean_nothing(tmp_path: Path) -> None:
    for number, split in enumerate(("train", "val", "test")):
        rows = f'1\t1\t2\tHe said "yes {number}.\t"Yes," he said.\r\n0\t3\t4\tA {number}\tB\r\n'
        (tmp_path / f"{split}.tsv").write_text(MRPC + rows, newline="")
    names = {"train": "train.tsv", "dev": "val.tsv", "test": "test.tsv"}
    columns = {"first": "#1 String", "second": "#2 String", "label": "Quality"}
    found = read("pair", tmp_path, **names, **columns)
    assert found.labels == ["0", "1"]
    assert found.train.fields == [('He said "yes 0.', '"Yes," he said.'), ("A 0", "B")]
    assert targets(found.train) == [[1], [0]]
    (tmp_path / "test.tsv").write_text(MRPC + "1\t1\t2\tHere\t \n", newline="")
    with pytest.raises(DataError, match=r"test\.tsv, line 2: the second text \('#2 String'\) is empty; remove the row"):
        read("pair", tmp_path, **names, **columns)
    with pytest.raises(DataError, match=r"no column '#1 Strin'; did you mean '#1 String'\?"):
        read("pair", tmp_path, **names, **{**columns, "first": "#1 Strin"})


def test_a_pair_is_the_same_only_if_both_sides_are(tmp_path: Path) -> None:
    jsonl(
        tmp_path / "train.jsonl",
        {"first": "a", "second": "b", "label": 1},
        {"first": "a", "second": "c", "label": 0},
        {"first": "a b", "second": "c", "label": 1},
    )
    jsonl(tmp_path / "dev.jsonl", {"first": "d", "second": "b", "label": 1})
    jsonl(tmp_path / "test.jsonl", {"first": "A!", "second": "c.", "label": 1})
    found = read("pair", tmp_path, overlap="report")
    assert found.counts == {"train_rows_in_later_splits": 1, "dev_rows_in_later_splits": 0}
    with pytest.raises(DataError) as caught:
        read("pair", tmp_path, overlap="refuse")
    assert str(caught.value) == (
        f"{tmp_path}: 1 row(s) of train and dev stand in a later split too, the first in train (line 2): 'a | c'; "
        "remove them, or set data.tasks.things.overlap to drop or report"
    )


def test_similarities(tmp_path: Path) -> None:
    three(tmp_path, {"first": "a", "second": "b", "score": 4.5}, {"first": "c", "second": "d", "score": "1"})
    found = read("similarity", tmp_path, overlap="report")
    assert (found.labels, targets(found.train)) == ([], [[4.5], [1.0]])
    for value in ("high", None, "nan"):
        three(tmp_path, {"first": "a", "second": "b", "score": value})
        with pytest.raises(DataError, match=rf"line 1: the score \('score'\) is {value!r}, not a number; correct it"):
            read("similarity", tmp_path)
    three(tmp_path, {"first": "a", "second": "b", "score": 1}, {"first": "c", "second": "b", "score": 1.0})
    with pytest.raises(DataError, match=r"train\.jsonl: all scores are 1; check data\.tasks\.things\.score"):
        read("similarity", tmp_path)


# tagging


def conll(folder: Path, train: str, dev: str = "x O\n", test: str = "y O\n") -> dict[str, str]:
    for name, text in (("train", train), ("dev", dev), ("test", test)):
        (folder / f"{name}.conll").write_text(text)
    return {split: f"{split}.conll" for split in ("train", "dev", "test")}


def test_spans_of_one_scheme_learned_in_another(tmp_path: Path) -> None:
    names = conll(tmp_path, "New I-LOC\nYork I-LOC\nBonn B-LOC\nsleeps O\n\nAda I-PER\n")
    found = read("tagging", tmp_path, scheme="iob1", **names)
    assert found.labels == ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
    assert found.train.fields == [("New", "York", "Bonn", "sleeps"), ("Ada",)]
    assert targets(found.train) == [[0, 2, 0, 4], [1]]
    found = read("tagging", tmp_path, scheme="iob1", learn_as="iobes", **names)
    assert [found.labels[int(tag)] for tag in found.train.targets[0]] == ["B-LOC", "E-LOC", "S-LOC", "O"]
    with pytest.raises(DataError) as caught:
        read("tagging", tmp_path, **names)
    assert str(caught.value) == (
        f"{tmp_path}/train.conll, line 1: word 'New', scheme bio: tag 'I-LOC' at the start goes on with no span of its "
        "type; correct it, or name the file's scheme (iob1, iobes)"
    )


def test_an_inner_tag_that_train_lacks_is_learned_with_its_type(tmp_path: Path) -> None:
    names = conll(tmp_path, "Bonn B-LOC\n", test="New B-LOC\nYork I-LOC\n")
    assert targets(read("tagging", tmp_path, **names).test) == [[0, 1]]
    names = conll(tmp_path, "Bonn B-LOC\n", test="a O\n\nAda B-PER\n")
    with pytest.raises(DataError, match=r"test\.conll, line 3: label 'PER' does not occur in train\.conll"):
        read("tagging", tmp_path, **names)
    names = conll(tmp_path, "Bonn O\n")
    with pytest.raises(DataError, match=r"train\.conll: holds no span; check data\.tasks\.things\.tags"):
        read("tagging", tmp_path, **names)
    names = conll(tmp_path, "Bonn B-LOC\n", test="\n\n")
    with pytest.raises(DataError, match=r"test\.conll: holds no sentences"):
        read("tagging", tmp_path, **names)


def test_a_word_without_a_tag(tmp_path: Path) -> None:
    names = conll(tmp_path, "Bonn\tB-LOC\nis\t\n")
    with pytest.raises(DataError, match=r"train\.conll, line 2: word 'is' has no tag"):
        read("tagging", tmp_path, **names)


def conllu(number: int, *words: tuple[str, str]) -> str:
    lines = [f"{place}\t{word}\t_\t{tag}\t_\t_\t0\t_\t_\t_\n" for place, (word, tag) in enumerate(words, 1)]
    return f"# sent_id = s{number}\n# genre = mail\n" + "".join(lines) + "\n"


def test_a_file_without_empty_lines_is_no_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("word\tO\n" * 10_001)
    with pytest.raises(
        DataError, match=r"a\.conll, line 1: a sentence of 10001 words, 10000 are the most; set sentences"
    ):
        read("tagging", tmp_path, train="a.conll", dev="a.conll", test="a.conll")


def test_parts_of_speech_of_conllu_with_ids_and_slices_from_comments(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text(conllu(1, ("go", "VERB"), ("on", "ADP")) + conllu(2, ("Go", "VERB")))
    (tmp_path / "b.conllu").write_text(conllu(3, ("stay", "VERB")))
    names = {"train": "a.conllu", "dev": "b.conllu", "test": "b.conllu"}
    found = read("tagging", tmp_path, scheme="none", slice="genre", overlap="report", **names)
    assert found.labels == ["ADP", "VERB"]
    assert (targets(found.train), found.train.ids, found.train.slices) == ([[1, 0], [1]], ["s1", "s2"], ["mail"] * 2)
    (tmp_path / "a.conllu").write_text(conllu(1, ("go", "VERB"), ("on", "ADP")) + conllu(1, ("Go", "VERB")))
    with pytest.raises(DataError, match=r"line 6: id 's1' stands on line 1 too \(1 row\(s\) repeat an id\)"):
        read("tagging", tmp_path, scheme="none", overlap="report", **names)


def test_words_and_tags_side_by_side_and_in_lists(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "seq.in").write_text("play  some jazz \nstop\n")
        (tmp_path / split / "seq.out").write_text("O O B-genre\nO\n")
    pq.write_table(pa.table({"words": [["some", "jazz"]], "tags": [["O", "B-genre"]]}), tmp_path / "dev.parquet")
    found = read("tagging", tmp_path, train="train", dev="dev.parquet", test="test", overlap="report")
    assert found.train.fields == [("play", "some", "jazz"), ("stop",)]
    assert (targets(found.dev), found.labels) == ([[2, 0]], ["B-genre", "I-genre", "O"])
    (tmp_path / "train" / "seq.out").write_text("O O B-genre\nO O\n")
    with pytest.raises(DataError, match=r"train, line 2: 1 words, 2 tags; each word has one tag"):
        read("tagging", tmp_path, train="train", dev="dev.parquet", test="test")
    (tmp_path / "train" / "seq.out").write_text("O I-genre O\nO\n")
    with pytest.raises(DataError, match=r"train, line 1, word 2: word 'some', scheme bio: tag 'I-genre' after 'O'"):
        read("tagging", tmp_path, train="train", dev="dev.parquet", test="test")
    jsonl(tmp_path / "dev.jsonl", {"words": ["a", " "], "tags": ["O", "O"]})
    with pytest.raises(DataError, match=r"dev\.jsonl, line 1: 'words' holds an empty word; remove it, and its tag"):
        read("tagging", tmp_path, train="test", dev="dev.jsonl", test="test")


# questions


CONTEXT = "Iron is a metal. Gold is a metal too."


def squad(path: Path, *asked: tuple[str, str, list[tuple[str, int]]], context: str = CONTEXT) -> None:
    qas = [
        {
            "id": number,
            "question": question,
            "is_impossible": not answers,
            "answers": [{"text": text, "answer_start": start} for text, start in answers],
        }
        for number, question, answers in asked
    ]
    path.write_text(json.dumps({"data": [{"title": "T", "paragraphs": [{"context": context, "qas": qas}]}]}))


SQUAD = {"train": "train.json", "dev": "dev.json", "test": "test.json"}


def test_answers_are_offsets_and_none_is_none(tmp_path: Path) -> None:
    squad(tmp_path / "train.json", ("a", "What?", [("metal", 10), ("a metal", 8)]), ("b", "Who?", []))
    squad(tmp_path / "dev.json", ("c", "Which?", [("Gold", 17)]))
    squad(tmp_path / "test.json", ("d", "Where?", []))
    found = read("questions", tmp_path, slice="title", **SQUAD)
    assert found.train.fields == [("What?", CONTEXT), ("Who?", CONTEXT)]
    assert targets(found.train) == [[10, 15, 8, 15], []]
    assert (found.train.ids, found.train.slices, found.labels) == (["a", "b"], ["T", "T"], [])
    assert found.counts["unanswerable"] == 2
    assert all(
        CONTEXT[int(start) : int(end)] in ("metal", "a metal")
        for start, end in np.reshape(found.train.targets[0], (-1, 2))
    )


def test_answers_that_do_not_match_their_context(tmp_path: Path) -> None:
    wrong = [("w1", "A?", [("metal", 11)]), ("w2", "B?", [("silver", 3), ("Gold", 17)]), ("w3", "C?", [("tin", 0)])]
    squad(tmp_path / "train.json", ("a", "What?", [("metal", 10)]), *wrong, ("w4", "D?", [("metal", 30)]))
    squad(tmp_path / "dev.json", ("c", "Which?", [("Gold", 17)]))
    squad(tmp_path / "test.json", ("d", "Where?", [("Iron", 0)]))
    with pytest.raises(DataError) as caught:
        read("questions", tmp_path, **SQUAD)
    assert str(caught.value) == (
        f"{tmp_path}/train.json, question 2: id w1: answer 'metal' is not at character 11, where 'etal.' stands; "
        "4 answer(s) of 4 question(s) do not match their context: correct them, or set "
        "data.tasks.things.wrong_spans to move or drop"
    )
    moved = read("questions", tmp_path, wrong_spans="move", **SQUAD)
    assert dict(zip(moved.train.ids, targets(moved.train), strict=True)) == {
        "a": [10, 15],
        "w1": [10, 15],
        "w2": [17, 21],
        "w4": [27, 32],
    }
    assert moved.counts["wrong_spans"] == 4
    dropped = read("questions", tmp_path, wrong_spans="drop", **SQUAD)
    assert dropped.train.ids == ["a"]


def test_white_space_around_an_answer_is_none_of_it(tmp_path: Path) -> None:
    context = " Iron is a metal. "
    squad(tmp_path / "a.json", ("a", "What?", [(" Iron ", 0), ("metal. ", 11)]), context=context)
    found = read("questions", tmp_path, train="a.json", dev="a.json", test="a.json", overlap="report")
    assert targets(found.train) == [[1, 5, 11, 17]]
    assert [context[start:end] for start, end in ((1, 5), (11, 17))] == ["Iron", "metal."]


def test_an_offset_before_the_context_is_wrong(tmp_path: Path) -> None:
    squad(tmp_path / "train.json", ("a", "What?", [("too.", -4)]))
    with pytest.raises(DataError, match=r"id a: answer 'too\.' is not at character -4"):
        read("questions", tmp_path, train="train.json", dev=None, test="train.json")


def test_ids_of_questions_and_empty_ones(tmp_path: Path) -> None:
    squad(tmp_path / "train.json", ("a", "What?", [("metal", 10)]), ("a", "Who?", []))
    with pytest.raises(DataError, match=r"question 2: id 'a' stands on question 1 too"):
        read("questions", tmp_path, train="train.json", dev="train.json", test="train.json")
    squad(tmp_path / "train.json", ("a", " ", [("metal", 10)]))
    with pytest.raises(DataError, match=r"question 1: the question \('question'\) is empty"):
        read("questions", tmp_path, train="train.json", dev="train.json", test="train.json")
    squad(tmp_path / "train.json", ("a", "What?", []))
    with pytest.raises(DataError, match=r"train\.json: no question has an answer"):
        read("questions", tmp_path, train="train.json", dev="train.json", test="train.json")


def test_questions_in_tables_and_a_dev_share_by_context(tmp_path: Path) -> None:
    rows = [
        {"q": f"What {part}?", "c": f"{CONTEXT} {number}", "a": {"text": ["metal"], "answer_start": [10]}}
        for number in range(40)
        for part in "xy"
    ]
    jsonl(tmp_path / "train.jsonl", *rows)
    jsonl(tmp_path / "test.jsonl", {"q": "Who?", "c": CONTEXT, "a": [{"text": "Gold", "answer_start": 17}]})
    columns = {"question": "q", "context": "c", "answers": "a"}
    found = read("questions", tmp_path, dev=None, dev_share=0.3, **columns)
    contexts = [{context for _, context in split.fields} for split in (found.train, found.dev)]
    assert not contexts[0] & contexts[1] and 2 * len(contexts[1]) == len(found.dev) > 4
    assert targets(found.test) == [[17, 21]]
    jsonl(tmp_path / "test.jsonl", {"q": "Who?", "c": CONTEXT, "a": "Gold"})
    with pytest.raises(DataError, match=r"test\.jsonl, line 1: 'a' holds no answers; a list of {text, answer_start}"):
        read("questions", tmp_path, dev=None, **columns)


# choices


def test_choices_in_columns_and_in_a_list(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("ctx,e0,e1,right\nIt rains,so we run,so we fly,1\nIt snows,we ski,we swim,0\n")
    jsonl(tmp_path / "test.jsonl", {"ctx": "2 + 2", "e": ["3", "4", "5"], "right": "B"})
    both = {"text": "ctx", "label": "right", "overlap": "report"}
    found = read("choice", tmp_path, train="train.csv", dev="train.csv", test="train.csv", choices=["e0", "e1"], **both)
    assert found.train.fields[0] == ("It rains", "so we run", "so we fly") and targets(found.train) == [[1], [0]]
    files = {"train": "test.jsonl", "dev": "test.jsonl", "test": "test.jsonl", "choices": "e", **both}
    assert targets(read("choice", tmp_path, answer="letter", **files).train) == [[1]]
    jsonl(tmp_path / "test.jsonl", {"ctx": "2 + 2", "e": ["3", "4", "5"], "right": 3})
    assert targets(read("choice", tmp_path, answer="from_one", **files).train) == [[2]]
    assert targets(read("choice", tmp_path, answer="text", **files).train) == [[0]]
    with pytest.raises(DataError) as caught:
        read("choice", tmp_path, **files)
    with pytest.raises(DataError, match="label 'ß' names none of the 3 choices"):
        jsonl(tmp_path / "train.jsonl", {"ctx": "2 + 2", "e": ["3", "4", "5"], "right": "ß"})
        read("choice", tmp_path, answer="letter", **files | {"train": "train.jsonl"})
    assert str(caught.value) == (
        f"{tmp_path}/test.jsonl, line 1: label '3' names none of the 3 choices (answer: from_zero); "
        "correct it, or set answer to from_zero, from_one, letter or text"
    )


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (["one"], r"line 1: 1 choice\(s\); there have to be two or more"),
        (["one", ""], r"line 1: a choice \('choices'\) is empty"),
        ("one, two", "line 1: 'choices' holds no list of choices; name a column for each of them"),
    ],
)
def test_choices_that_are_none(tmp_path: Path, choices: Any, message: str) -> None:
    three(tmp_path, {"text": "x", "choices": choices, "label": 0})
    with pytest.raises(DataError, match=rf"train\.jsonl, {message}"):
        read("choice", tmp_path)
