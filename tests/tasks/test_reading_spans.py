"""Labelled words and answers in every format: exact rows of small files, and messages of invalid input."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from tests.tasks.labelled import jsonl, read, targets

# tagging


def conll(folder: Path, train: str, dev: str = "x O\n", test: str = "y O\n") -> dict[str, str]:
    for name, text in (("train", train), ("dev", dev), ("test", test)):
        (folder / f"{name}.conll").write_text(text)
    return {split: f"{split}.conll" for split in ("train", "dev", "test")}


def test_spans_are_converted_to_the_scheme_of_the_model(tmp_path):
    names = conll(tmp_path, "New I-LOC\nYork I-LOC\nBonn B-LOC\nsleeps O\n\nAda I-PER\n")
    actual = read("tagging", tmp_path, scheme="iob1", **names)
    assert actual.labels == ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
    assert actual.train.fields == [("New", "York", "Bonn", "sleeps"), ("Ada",)]
    assert targets(actual.train) == [[0, 2, 0, 4], [1]]


def test_spans_that_begin_with_the_letter_of_another_scheme_are_repaired_and_counted(tmp_path):
    names = conll(tmp_path, "New I-LOC\nYork I-LOC\nBonn B-LOC\nsleeps O\nAda I-PER\n\nAda B-PER\nin O\nRome I-LOC\n")
    # The strays of bio begin a span; a B of iob1 that follows no span of its type is its I.
    for scheme in ("bio", "iob1"):
        actual = read("tagging", tmp_path, scheme=scheme, **names)
        tags = [[actual.labels[int(number)] for number in target] for target in targets(actual.train)]
        assert tags == [["B-LOC", "I-LOC", "B-LOC", "O", "B-PER"], ["B-PER", "O", "B-LOC"]]
    assert actual.counts["train_tags_repaired"] == 1
    assert read("tagging", tmp_path, **names).counts["train_tags_repaired"] == 3


def test_an_inner_tag_missing_in_train_is_a_label_of_its_type(tmp_path):
    names = conll(tmp_path, "Bonn B-LOC\n", test="New B-LOC\nYork I-LOC\n")
    assert targets(read("tagging", tmp_path, **names).test) == [[0, 1]]
    names = conll(tmp_path, "Bonn B-LOC\n", test="a O\n\nAda B-PER\n")
    with pytest.raises(DataError, match=r"test\.conll, line 3: label 'PER' does not occur in train\.conll"):
        read("tagging", tmp_path, **names)
    names = conll(tmp_path, "Bonn O\n")
    with pytest.raises(DataError, match=r"train\.conll: holds no span; check data\.tasks\.things\.tags"):
        read("tagging", tmp_path, **names)
    names = conll(tmp_path, "Bonn B-LOC\n", test="\n\n")
    with pytest.raises(DataError, match=r"test\.conll: holds no rows"):
        read("tagging", tmp_path, **names)


@pytest.mark.parametrize(
    ("line", "message"),
    [("is\t", "word 2, 'is', has no tag; fill it in"), (" \tO", "word 2 is empty; remove it, and its tag")],
)
def test_a_word_or_tag_that_is_empty(line, message, tmp_path):
    names = conll(tmp_path, f"Bonn\tB-LOC\n{line}\n")
    with pytest.raises(DataError, match=rf"train\.conll, line 2: {message}"):
        read("tagging", tmp_path, **names)


def conllu(number: int, *words: tuple[str, str]) -> str:
    lines = [f"{index}\t{word}\t_\t{tag}\t_\t_\t0\t_\t_\t_\n" for index, (word, tag) in enumerate(words, 1)]
    return f"# sent_id = s{number}\n# genre = mail\n" + "".join(lines) + "\n"


def test_a_file_without_empty_lines_is_refused(tmp_path):
    (tmp_path / "a.conll").write_text("word\tO\n" * 10_001)
    with pytest.raises(
        DataError, match=r"a\.conll, line 1: a sentence of 10001 words, the maximum is 10000; separate the sentences"
    ):
        read("tagging", tmp_path, train="a.conll", dev="a.conll", test="a.conll")


def test_parts_of_speech_of_conllu_with_ids_and_slices_from_comments(tmp_path):
    (tmp_path / "a.conllu").write_text(conllu(1, ("go", "VERB"), ("on", "ADP")) + conllu(2, ("Go", "VERB")))
    (tmp_path / "b.conllu").write_text(conllu(3, ("stay", "VERB")))
    names = {"train": "a.conllu", "dev": "b.conllu", "test": "b.conllu"}
    actual = read("tagging", tmp_path, scheme="none", slice="genre", overlap="report", **names)
    assert actual.labels == ["ADP", "VERB"]
    assert (targets(actual.train), actual.train.ids, actual.train.slices) == ([[1, 0], [1]], ["s1", "s2"], ["mail"] * 2)
    (tmp_path / "a.conllu").write_text(conllu(1, ("go", "VERB"), ("on", "ADP")) + conllu(1, ("Go", "VERB")))
    with pytest.raises(DataError, match=r"line 6: id 's1' is also on line 1 \(1 row\(s\) repeat an id\)"):
        read("tagging", tmp_path, scheme="none", overlap="report", **names)
    for tags, message in (
        ("xpos", r"conllu, line 3: word 1, 'go', has no tag"),
        ("deprl", r"conllu: CoNLL-U has no column 'deprl'; did you mean 'deprel'"),
    ):
        with pytest.raises(DataError, match=message):
            read("tagging", tmp_path, scheme="none", tags=tags, **names)


def test_words_and_tags_in_parallel_files_and_in_lists(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "seq.in").write_text("play  some jazz \nstop\n")
        (tmp_path / split / "seq.out").write_text("O O B-genre\nO\n")
    pq.write_table(pa.table({"words": [["some", "jazz"]], "tags": [["O", "B-genre"]]}), tmp_path / "dev.parquet")
    actual = read("tagging", tmp_path, train="train", dev="dev.parquet", test="test", overlap="report")
    assert actual.train.fields == [("play", "some", "jazz"), ("stop",)]
    assert (targets(actual.dev), actual.labels) == ([[2, 0]], ["B-genre", "I-genre", "O"])
    (tmp_path / "train" / "seq.out").write_text("O O B-genre\nO O\n")
    with pytest.raises(DataError, match=r"train, line 2: 1 words, 2 tags; each word needs one tag"):
        read("tagging", tmp_path, train="train", dev="dev.parquet", test="test")
    (tmp_path / "train" / "seq.out").write_text("O E-genre O\nO\n")
    with pytest.raises(DataError, match=r"train, line 1: word 2, 'some', scheme bio: tag 'E-genre' is not a tag"):
        read("tagging", tmp_path, train="train", dev="dev.parquet", test="test")
    jsonl(tmp_path / "dev.jsonl", {"words": ["a", " "], "tags": ["O", "O"]})
    with pytest.raises(DataError, match=r"dev\.jsonl, line 1: word 2 is empty; remove it, and its tag"):
        read("tagging", tmp_path, train="test", dev="dev.jsonl", test="test")


# questions


CONTEXT = "Iron is a metal. Gold is a metal too."


def squad(path: Path, *questions: tuple[str, str, list[tuple[str, int]]], context: str = CONTEXT) -> None:
    qas = [
        {
            "id": number,
            "question": question,
            "is_impossible": not answers,
            "answers": [{"text": text, "answer_start": start} for text, start in answers],
        }
        for number, question, answers in questions
    ]
    path.write_text(json.dumps({"data": [{"title": "T", "paragraphs": [{"context": context, "qas": qas}]}]}))


SQUAD = {"train": "train.json", "dev": "dev.json", "test": "test.json"}


def test_answers_are_offsets_and_empty_without_an_answer(tmp_path):
    squad(tmp_path / "train.json", ("a", "What?", [("metal", 10), ("a metal", 8)]), ("b", "Who?", []))
    squad(tmp_path / "dev.json", ("c", "Which?", [("Gold", 17)]))
    squad(tmp_path / "test.json", ("d", "Where?", []))
    actual = read("questions", tmp_path, slice="title", **SQUAD)
    assert actual.train.fields == [("What?", CONTEXT), ("Who?", CONTEXT)]
    assert targets(actual.train) == [[10, 15, 8, 15], []]
    assert (actual.train.ids, actual.train.slices, actual.labels) == (["a", "b"], ["T", "T"], [])
    assert actual.counts["unanswerable"] == 2
    assert all(
        CONTEXT[int(start) : int(end)] in ("metal", "a metal")
        for start, end in np.reshape(actual.train.targets[0], (-1, 2))
    )


def test_answers_that_do_not_match_their_context(tmp_path):
    wrong = [("w1", "A?", [("metal", 11)]), ("w2", "B?", [("silver", 3), ("Gold", 17)]), ("w3", "C?", [("tin", 0)])]
    squad(tmp_path / "train.json", ("a", "What?", [("metal", 10)]), *wrong, ("w4", "D?", [("metal", 30)]))
    squad(tmp_path / "dev.json", ("c", "Which?", [("Gold", 17)]))
    squad(tmp_path / "test.json", ("d", "Where?", [("Iron", 0)]))
    with pytest.raises(DataError) as caught:
        read("questions", tmp_path, **SQUAD)
    assert str(caught.value) == (
        f"{tmp_path}/train.json, question 2: id w1: answer 'metal' is not at character 11, found 'etal.'; "
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


def test_white_space_around_an_answer_is_removed(tmp_path):
    context = " Iron is a metal. "
    squad(tmp_path / "a.json", ("a", "What?", [(" Iron ", 0), ("metal. ", 11)]), context=context)
    actual = read("questions", tmp_path, train="a.json", dev="a.json", test="a.json", overlap="report")
    assert targets(actual.train) == [[1, 5, 11, 17]]
    assert [context[start:end] for start, end in ((1, 5), (11, 17))] == ["Iron", "metal."]


def test_invisible_characters_around_an_answer_are_removed(tmp_path):
    context = "\u200bIron\u200b is a me\u200btal\x00\u200d."
    squad(
        tmp_path / "a.json", ("a", "What?", [("\u200bIron\u200b ", 0), ("me\u200btal\x00\u200d", 12)]), context=context
    )
    actual = read("questions", tmp_path, train="a.json", dev="a.json", test="a.json", overlap="report")
    assert targets(actual.train) == [[1, 5, 12, 18]]
    assert (context[1:5], context[12:18]) == ("Iron", "me\u200btal")


def test_an_offset_before_the_context_is_wrong(tmp_path):
    squad(tmp_path / "train.json", ("a", "What?", [("too.", -4)]))
    with pytest.raises(DataError, match=r"id a: answer 'too\.' is not at character -4"):
        read("questions", tmp_path, train="train.json", dev=None, test="train.json")


def test_ids_of_questions_and_empty_ones(tmp_path):
    squad(tmp_path / "train.json", ("a", "What?", [("metal", 10)]), ("a", "Who?", []))
    with pytest.raises(DataError, match=r"question 2: id 'a' is also on question 1"):
        read("questions", tmp_path, train="train.json", dev="train.json", test="train.json")
    squad(tmp_path / "train.json", ("a", " ", [("metal", 10)]))
    with pytest.raises(DataError, match=r"question 1: the question \('question'\) is empty"):
        read("questions", tmp_path, train="train.json", dev="train.json", test="train.json")
    squad(tmp_path / "train.json", ("a", "What?", []))
    with pytest.raises(DataError, match=r"train\.json: no question has an answer"):
        read("questions", tmp_path, train="train.json", dev="train.json", test="train.json")


def test_questions_in_tables_and_a_dev_share_by_context(tmp_path):
    rows = [
        {"q": f"What {part}?", "c": f"{CONTEXT} {number}", "a": {"text": ["metal"], "answer_start": [10]}}
        for number in range(40)
        for part in "xy"
    ]
    jsonl(tmp_path / "train.jsonl", *rows)
    jsonl(tmp_path / "test.jsonl", {"q": "Who?", "c": CONTEXT, "a": [{"text": "Gold", "answer_start": 17}]})
    columns = {"question": "q", "context": "c", "answers": "a"}
    actual = read("questions", tmp_path, dev=None, selection="dev", **columns)
    contexts = [{context for _, context in split.fields} for split in (actual.train, actual.dev)]
    assert not contexts[0] & contexts[1] and 2 * len(contexts[1]) == len(actual.dev) >= 2
    assert targets(actual.test) == [[17, 21]]
    jsonl(tmp_path / "test.jsonl", {"q": "Who?", "c": CONTEXT, "a": "Gold"})
    with pytest.raises(DataError, match=r"line 1: 'a' holds no answers; expected a list of {text, answer_start}"):
        read("questions", tmp_path, dev=None, **columns)
