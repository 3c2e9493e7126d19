"""Labelled data in every format: exact rows of small files, and each wrong input with its message."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from components.data.tasks.examples import digest
from tests.tasks.labelled import jsonl, read, targets

SPLITS = ("train", "dev", "test")
CONTEXT = "Iron is a metal. Gold is a metal too."


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def squad(*questions: tuple[str, str, list[tuple[str, int]]], context: str = CONTEXT) -> str:
    qas = [
        {"id": number, "question": question, "is_impossible": not answers}
        | {"answers": [{"text": text, "answer_start": start} for text, start in answers]}
        for number, question, answers in questions
    ]
    return json.dumps({"data": [{"title": "T", "paragraphs": [{"context": context, "qas": qas}]}]})


def conllu(number: int, *words: tuple[str, str]) -> str:
    rows = [f"{index}\t{word}\t_\t{tag}\t_\t_\t0\t_\t_\t_\n" for index, (word, tag) in enumerate(words, 1)]
    return f"# sent_id = s{number}\n# genre = mail\n" + "".join(rows) + "\n"


def write(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """Write files by name; the keys of the splits whose files they are."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, newline="")
    return {Path(name).stem: name for name in files if Path(name).stem in SPLITS and "/" not in name}


def conll(train: str, dev: str = "x O\n", test: str = "y O\n") -> dict[str, str]:
    return dict(zip((f"{split}.conll" for split in SPLITS), (train, dev, test), strict=True))


ROW = {"text": "x", "label": "a"}
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
PAIR = {"first": "#1 String", "second": "#2 String", "label": "Quality"}
PAIRS = {
    f"{split}.tsv": MRPC + f'1\t1\t2\tHe said "yes {number}.\t"Yes," he said.\r\n0\t3\t4\tA {number}\tB\r\n'
    for number, split in enumerate(SPLITS)
}
FLAGS = {
    "train.csv": "text,rude,kind\n" + "".join(f"x{n},{n % 2},{n % 3 % 2}\n" for n in range(20)),
    "test.csv": "text,rude,kind\nw,1,0\n",
}
OF_FLAGS = {"labels": ["rude", "kind"], "dev": None, "overlap": "report"}
CHOICE = lines({"ctx": "2 + 2", "e": ["3", "4", "5"], "right": 3})
OF_CHOICE = {"text": "ctx", "label": "right", "choices": "e", "overlap": "report"}
WRONG = [("w1", "A?", [("metal", 11)]), ("w2", "B?", [("silver", 3), ("Gold", 17)]), ("w3", "C?", [("tin", 0)])]
ANSWERS = {
    "train.json": squad(("a", "What?", [("metal", 10)]), *WRONG, ("w4", "D?", [("metal", 30)])),
    "dev.json": squad(("c", "Which?", [("Gold", 17)])),
    "test.json": squad(("d", "Where?", [("Iron", 0)])),
}


def same(text: str, suffix: str = "jsonl") -> dict[str, str]:
    """One file as every split."""
    return {f"{split}.{suffix}": text for split in SPLITS}


def numbers(kind: str, *scores: Any, text: str = "a") -> dict[str, str]:
    names = ("first", "second") if kind == "similarity" else ("text",)
    return same(lines(*(dict.fromkeys(names, text and f"{text}{n}") | {"score": s} for n, s in enumerate(scores))))


#: Kind, files, keys of the task, and the message.
REFUSED: list[tuple[str, dict[str, str], dict[str, Any], str]] = [
    *(
        ("classification", same(lines(row)), {}, rf"train\.jsonl, line 1: {message}")
        for row, message in (
            (ROW | {"text": " "}, r"the text \('text'\) is empty; remove the row or fill it in"),
            (ROW | {"text": "a\0b"}, r"the text \('text'\) contains a NUL character; remove it"),
            (ROW | {"label": None}, r"the label \('label'\) is missing; remove the row, label it"),
            (ROW | {"label": " "}, r"the label \('label'\) is missing"),
            ({"text": "x", "lable": "a"}, r"no column 'label'; did you mean 'lable'\?; name the column in params"),
            (ROW | {"text": ["x"]}, "holds a list where text is expected"),
        )
    ),
    ("classification", same(lines(ROW)), {"group": "author"}, r"train\.jsonl, line 1: no column 'author'"),
    (
        "classification",
        same(lines(*({"id": n % 3, "text": f"text {n}", "label": n % 2} for n in range(5)))),
        {"id": "id"},
        r"/train\.jsonl, line 4: id '0' is also on line 1 \(2 row\(s\) repeat an id\); make the ids distinct, or name "
        "no id column$",
    ),
    (
        "classification",
        {f"{name}.jsonl": lines({"id": "a", "text": name, "label": n}) for n, name in enumerate(("one", "two"))},
        {"id": "id", "train": ["one.jsonl", "two.jsonl"], "test": "one.jsonl", "dev": None},
        r"two\.jsonl, line 1: id 'a' is also on .*/one\.jsonl, line 1",
    ),
    ("classification", {"train.csv": "text,label\n"}, {"dev": None, "test": None}, r"train\.csv: holds no rows"),
    (
        "classification",
        same(lines(ROW, {"text": "y", "label": "b"})),
        {"train": ["train.jsonl", "more.jsonl"]},
        r"more\.jsonl: does not exist; the splits are named under data\.tasks",
    ),
    (
        "multilabel",
        {"train.jsonl": lines(ROW), "test.jsonl": lines(ROW | {"label": "c,d"})},
        {"dev": None},
        r"test\.jsonl, line 1: label 'c' does not occur in train\.jsonl",
    ),
    (
        "multilabel",
        FLAGS | {"test.csv": "text,rude,kind\nw,1,2\n"},
        OF_FLAGS,
        "line 2: column 'kind' holds '2'; a column of labels holds 0 or 1",
    ),
    (
        "multilabel",
        same(lines({"text": "x", "rude": [], "kind": []})),
        {"labels": ["rude", "kind"], "overlap": "report"},
        r"line 1: column 'rude' holds \[\]; a column of labels holds 0 or 1",
    ),
    (
        "multilabel",
        FLAGS | {"train.csv": "text,rude,kind\nx,0,0\n"},
        OF_FLAGS,
        r"train\.csv: no row has a label; check data\.tasks\.things\.label",
    ),
    (
        "pair",
        PAIRS | {"test.tsv": MRPC + "1\t1\t2\tHere\t \n"},
        PAIR,
        r"test\.tsv, line 2: the second text \('#2 String'\) is empty; remove the row",
    ),
    ("pair", PAIRS, PAIR | {"first": "#1 Strin"}, r"no column '#1 Strin'; did you mean '#1 String'\?"),
    *(
        (kind, numbers(kind, *scores), {}, message)
        for kind in ("similarity", "regression")
        for scores, message in (
            *(
                ((value, 2), rf"line 1: the score \('score'\) is {value!r}, not a number; correct it")
                for value in ("high", "nan", "inf")
            ),
            ((None, 2), r"line 1: the score \('score'\) is missing; fill it in"),
            ((1, 1.0), r"train\.jsonl: all scores are 1; check data\.tasks\.things\.score"),
        )
    ),
    ("similarity", numbers("similarity", 1, 2, text=""), {}, r"line 1: the first text \('first'\) is empty"),
    (
        "choice",
        same(CHOICE),
        OF_CHOICE,
        r"train\.jsonl, line 1: label '3' does not identify one of the 3 choices \(answer: from_zero\); correct it, or "
        "set answer to from_zero, from_one, letter or text",
    ),
    (
        "choice",
        same(CHOICE.replace("3}", '"\\u00df"}')),
        OF_CHOICE | {"answer": "letter"},
        "label 'ß' does not identify one of the 3 choices",
    ),
    *(
        ("choice", same(lines({"text": "x", "choices": choices, "label": 0})), {}, rf"train\.jsonl, line 1: {message}")
        for choices, message in (
            (["one"], r"1 choice\(s\), expected two or more"),
            (["one", ""], r"a choice \('choices'\) is empty"),
            ("one, two", "'choices' holds no list of choices; set choices to a list of columns"),
        )
    ),
    *(
        ("tagging", files, {}, message)
        for files, message in (
            (conll("Bonn B-LOC\n", test="a O\n\nAda B-PER\n"), r"test\.conll, line 3: label 'PER' does not occur in"),
            (conll("Bonn O\n"), r"train\.conll: holds no span; check data\.tasks\.things\.tags"),
            (conll("Bonn B-LOC\n", test="\n\n"), r"test\.conll: holds no rows"),
            (conll("Bonn\tB-LOC\nis\t\n"), r"train\.conll, line 2: word 2, 'is', has no tag; fill it in"),
            (conll("Bonn\tB-LOC\n \tO\n"), r"train\.conll, line 2: word 2 is empty; remove it, and its tag"),
            (
                conll("word\tO\n" * 10_001),
                r"train\.conll, line 1: a sentence of 10001 words, the maximum is 10000; separate the sentences",
            ),
            (
                same(lines({"words": ["a", " "], "tags": ["O", "O"]})),
                r"train\.jsonl, line 1: word 2 is empty; remove it, and its tag",
            ),
        )
    ),
    *(
        ("tagging", same(text, "conllu"), {"scheme": "none", "overlap": "report"} | keys, message)
        for text, keys, message in (
            (
                conllu(1, ("go", "VERB"), ("on", "ADP")) + conllu(1, ("Go", "VERB")),
                {},
                r"line 6: id 's1' is also on line 1 \(1 row\(s\) repeat an id\)",
            ),
            (conllu(1, ("go", "VERB")), {"tags": "xpos"}, "conllu, line 3: word 1, 'go', has no tag"),
            (
                conllu(1, ("go", "VERB")),
                {"tags": "deprl"},
                "conllu: CoNLL-U has no column 'deprl'; did you mean 'deprel'",
            ),
        )
    ),
    *(
        (
            "tagging",
            {"all/seq.in": "play  some jazz \nstop\n", "all/seq.out": tags},
            dict.fromkeys(SPLITS, "all"),
            rf"all, line {message}",
        )
        for tags, message in (
            ("O O B-genre\nO O\n", "2: 1 words, 2 tags; each word needs one tag"),
            ("O E-genre O\nO\n", "1: word 2, 'some', scheme bio: tag 'E-genre' is not a tag"),
        )
    ),
    (
        "questions",
        ANSWERS,
        {},
        r"/train\.json, question 2: id w1: answer 'metal' is not at character 11, found 'etal\.'; 4 answer\(s\) of 4 "
        r"question\(s\) do not match their context: correct them, or set data\.tasks\.things\.wrong_spans to move or "
        "drop$",
    ),
    *(
        ("questions", same(squad(*questions), "json"), {}, message)
        for questions, message in (
            ([("a", "What?", [("too.", -4)])], r"id a: answer 'too\.' is not at character -4"),
            ([("a", "What?", [("metal", 10)]), ("a", "Who?", [])], "question 2: id 'a' is also on question 1"),
            ([("a", " ", [("metal", 10)])], r"question 1: the question \('question'\) is empty"),
            ([("a", "What?", [])], r"train\.json: no question has an answer"),
        )
    ),
    (
        "questions",
        same(lines({"question": "Who?", "context": CONTEXT, "answers": "Gold"})),
        {},
        "line 1: 'answers' holds no answers; expected a list of {text, answer_start}",
    ),
]


@pytest.mark.parametrize(("kind", "files", "keys", "message"), REFUSED)
def test_wrong_input_is_refused_with_its_place_and_the_remedy(kind, files, keys, message, tmp_path):
    named = write(tmp_path, files)
    with pytest.raises(DataError, match=message):
        read(kind, tmp_path, **named | keys)


QUOTED = {f"{split}.tsv": f'{split} film\t1\t{split}-1\na {split} "play\t0\t{split}-2\n' for split in SPLITS}
PARALLEL = {
    f"{split}/{name}": text
    for split in SPLITS
    for name, text in (("seq.in", f"play {split}\nrate {split} \n"), ("label", "Play\nRate\n"))
}
LISTS = {"train.jsonl": lines(ROW | {"label": ["b", "a"]}, {"text": "y", "label": "c, a,"})}
LISTS |= {"dev.jsonl": lines({"text": "z", "label": None}), "test.jsonl": lines({"text": "v", "label": "c"})}
IOB1 = "New I-LOC\nYork I-LOC\nBonn B-LOC\nsleeps O\n\nAda I-PER\n"
STRAYS = "New I-LOC\nYork I-LOC\nBonn B-LOC\nsleeps O\nAda I-PER\n\nAda B-PER\nin O\nRome I-LOC\n"
VERBS = {"train.conllu": conllu(1, ("go", "VERB"), ("on", "ADP")) + conllu(2, ("Go", "VERB"))}
VERBS |= {"dev.conllu": conllu(3, ("stay", "VERB")), "test.conllu": conllu(3, ("stay", "VERB"))}
TWO = squad(("a", "What?", [("metal", 10), ("a metal", 8)]), ("b", "Who?", []))
SPACED = squad(("a", "What?", [(" Iron ", 0), ("metal. ", 11)]), context=" Iron is a metal. ")
#: White space and invisible characters around an answer belong to no word.
HIDDEN = squad(
    ("a", "What?", [("\u200bIron\u200b ", 0), ("me\u200btal\x00\u200d", 12)]),
    context="\u200bIron\u200b is a me\u200btal\x00\u200d.",
)
MOVED = {"wrong_spans": "move", "overlap": "report"}

#: Kind, files, keys of the task; labels, and of one split its inputs (None: not shown here), targets and ids.
READ: dict[str, tuple[str, dict[str, str], dict[str, Any], list[str], str, Any, list[list[float]], Any]] = {
    "columns by number": (
        *("classification", QUOTED, {"text": 0, "label": 1, "id": 2, "header": False}, ["0", "1"]),
        *("test", [("test film",), ('a test "play',)], [[1], [0]], ["test-1", "test-2"]),
    ),
    "parallel files": (
        *("classification", PARALLEL, {"text": "seq.in"} | {split: split for split in SPLITS}, ["Play", "Rate"]),
        *("dev", [("play dev",), ("rate dev ",)], [[0], [1]], ["dev:1", "dev:2"]),
    ),
    "several labels": ("multilabel", LISTS, {}, ["a", "b", "c"], "train", None, [[0, 1], [0, 2]], None),
    "no label": ("multilabel", LISTS, {}, ["a", "b", "c"], "dev", [("z",)], [[]], None),
    "a column a label": ("multilabel", FLAGS, OF_FLAGS, ["kind", "rude"], "test", [("w",)], [[1]], None),
    "literal quotes": (
        *("pair", PAIRS, PAIR, ["0", "1"]),
        *("train", [('He said "yes 0.', '"Yes," he said.'), ("A 0", "B")], [[1], [0]], None),
    ),
    **{
        kind: (kind, numbers(kind, 4.5, "-1e2"), {"overlap": "report"}, [], "train", None, [[4.5], [-100]], None)
        for kind in ("similarity", "regression")
    },
    "choices in columns": (
        *("choice", same("ctx,e0,e1,right\nIt rains,run,fly,1\nIt snows,ski,swim,0\n", "csv")),
        *(OF_CHOICE | {"choices": ["e0", "e1"]}, [], "train"),
        *([("It rains", "run", "fly"), ("It snows", "ski", "swim")], [[1], [0]], None),
    ),
    **{
        f"choice {answer}": ("choice", same(text), OF_CHOICE | {"answer": answer}, [], "train", None, [[right]], None)
        for answer, text, right in (
            ("letter", CHOICE.replace("3}", '"B"}'), 1),
            ("from_one", CHOICE, 2),
            ("text", CHOICE, 0),
        )
    },
    "another scheme": (
        *("tagging", conll(IOB1), {"scheme": "iob1"}, ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]),
        *("train", [("New", "York", "Bonn", "sleeps"), ("Ada",)], [[0, 2, 0, 4], [1]], None),
    ),
    # The strays of bio begin a span; a B of iob1 that follows no span of its type is its I.
    **{
        f"strays of {scheme}": (
            *("tagging", conll(STRAYS), {"scheme": scheme}, ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]),
            *("train", None, [[0, 2, 0, 4, 1], [1, 4, 0]], None),
        )
        for scheme in ("bio", "iob1")
    },
    "an inner tag that train lacks": (
        *("tagging", conll("Bonn B-LOC\n", test="New B-LOC\nYork I-LOC\n"), {}, ["B-LOC", "I-LOC", "O"]),
        *("test", None, [[0, 1]], None),
    ),
    "parts of speech": (
        *("tagging", VERBS, {"scheme": "none", "overlap": "report"}, ["ADP", "VERB"]),
        *("train", None, [[1, 0], [1]], ["s1", "s2"]),
    ),
    "answers": (
        *("questions", ANSWERS | {"train.json": TWO}, {}, []),
        *("train", [("What?", CONTEXT), ("Who?", CONTEXT)], [[10, 15, 8, 15], []], ["a", "b"]),
    ),
    "answers that are moved": (
        *("questions", ANSWERS, MOVED, [], "train", None),
        *([[10, 15], [10, 15], [17, 21], [27, 32]], ["a", "w1", "w2", "w4"]),
    ),
    "questions that are dropped": (
        *("questions", ANSWERS, {"wrong_spans": "drop"}, [], "train", None, [[10, 15]], ["a"]),
    ),
    "spaces": ("questions", same(SPACED, "json"), MOVED, [], "train", None, [[1, 5, 11, 17]], None),
    "invisible characters": ("questions", same(HIDDEN, "json"), MOVED, [], "train", None, [[1, 5, 12, 18]], None),
}


@pytest.mark.parametrize("name", READ)
def test_rows_of_small_files(name, tmp_path):
    kind, files, keys, labels, split, fields, expected, ids = READ[name]
    data = read(kind, tmp_path, **write(tmp_path, files) | keys)
    rows = getattr(data, split)
    assert (data.labels, targets(rows)) == (labels, expected)
    assert fields in (None, rows.fields) and ids in (None, rows.ids)


def test_counts_of_repaired_tags_and_answers(tmp_path):
    names = write(tmp_path, conll(STRAYS) | ANSWERS)
    for scheme, count in (("iob1", 1), ("bio", 3)):
        files = {split: f"{split}.conll" for split in SPLITS}
        assert read("tagging", tmp_path, scheme=scheme, **files).counts["train_tags_repaired"] == count
    assert read("questions", tmp_path, wrong_spans="move", **names).counts["wrong_spans"] == 4
    (tmp_path / "test.json").write_text(squad(("d", "Where?", [])))
    counts = read("questions", tmp_path, wrong_spans="drop", slice="title", **names).counts
    assert counts["unanswerable"] == 1


def test_labels_before_texts_in_latin_1_with_a_share_of_train_as_dev(tmp_path):
    rows = [f"{number % 3} Where is café {number} ?" for number in range(60)]
    (tmp_path / "T.train").write_bytes("\n".join(rows).encode("latin-1"))
    (tmp_path / "T.test").write_bytes(b"2 Who ?\n")
    keys = {"format": "label-first", "encoding": "latin-1", "train": "T.train", "test": "T.test"}
    data = read("classification", tmp_path, dev=None, selection="dev", **keys)
    assert len(data.train) + len(data.dev) == 60 and len(data.dev) > 2
    assert data.train.fields[0][0].startswith("Where is café") and data.test.ids == ["T.test:1"]


def test_several_members_of_one_json_document_are_concatenated(tmp_path):
    document = {
        "train": [["book a table", "eat"], ["book a flight", "travel"]],
        "oos_train": [["sing", "oos"]],
        "val": [["a flight", "travel"]],
        "test": [["a table", "eat"], ["hum", "oos"]],
    }
    (tmp_path / "data.json").write_text(json.dumps(document))
    keys = {"dev": "data.json#val", "test": "data.json#test", "text": 0, "label": 1}
    data = read("classification", tmp_path, train=["data.json#train", "data.json#oos_train"], **keys)
    assert data.labels == ["eat", "oos", "travel"]
    assert data.train.fields == [("book a table",), ("book a flight",), ("sing",)]
    assert data.train.ids == ["data.json#train:1", "data.json#train:2", "data.json#oos_train:1"]
    message = (
        f"{tmp_path}/data.json#test, row 2: label 'oos' does not occur in data.json#train; correct it, or add examples "
        "of it to data.json#train"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        read("classification", tmp_path, train="data.json#train", **keys)


def test_rows_of_no_class_are_kept_in_test_only(tmp_path):
    for split in SPLITS:
        rows = [{"text": f"{label} {split}", "label": label, "part": "p"} for label in ("a", "b", "none")]
        jsonl(tmp_path / f"{split}.jsonl", *rows)
    data = read("classification", tmp_path, outside="none", slice="part")
    assert data.labels == ["a", "b"]
    assert [targets(split) for split in (data.train, data.dev, data.test)] == [[[0], [1]]] * 2 + [[[0], [1], [-1]]]
    assert data.test.slices == ["p", "p", None]
    assert (data.counts["outside_rows"], data.counts["train_rows_outside"]) == (1, 1)
    assert digest(data.test, data.labels) != digest(data.test.take([0, 1, 1]), data.labels)
    with pytest.raises(DataError, match=r"no row of test has the label 'nil'; check data\.tasks\.things\.outside"):
        read("classification", tmp_path, outside="nil")


def test_rows_without_a_label_can_be_left_out(tmp_path):
    for split in SPLITS:
        rows = [{"text": f"{split} {label}", "label": label} for label in ("a", "b", None, " ")]
        jsonl(tmp_path / f"{split}.jsonl", *rows[: 2 if split == "dev" else 4])
    data = read("classification", tmp_path, no_label="drop")
    assert (len(data.train), data.counts["train_rows_without_label"]) == (2, 2)
    assert (len(data.test), data.counts["test_rows_without_label"]) == (2, 2)


def test_duplicate_pairs_agree_in_both_texts(tmp_path):
    rows = [("a", "b", 1), ("a", "c", 0), ("a b", "c", 1)]
    pairs = [
        dict(zip(("first", "second", "label"), row, strict=True)) for row in (*rows, ("d", "b", 1), ("A!", "c.", 1))
    ]
    for split, of_split in zip(SPLITS, (pairs[:3], pairs[3:4], pairs[4:]), strict=True):
        jsonl(tmp_path / f"{split}.jsonl", *of_split)
    data = read("pair", tmp_path, overlap="report")
    assert data.counts == {"train_rows_in_later_splits": 1, "dev_rows_in_later_splits": 0}
    message = (
        f"{tmp_path}: 1 row(s) of train and dev are also in a later split, the first in train (line 2): 'a | c'; "
        "remove them, or set data.tasks.things.overlap to drop or report"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        read("pair", tmp_path, overlap="refuse")


def test_words_and_tags_in_lists(tmp_path):
    write(tmp_path, {"all/seq.in": "play  some jazz \nstop\n", "all/seq.out": "O O B-genre\nO\n"})
    pq.write_table(pa.table({"words": [["some", "jazz"]], "tags": [["O", "B-genre"]]}), tmp_path / "dev.parquet")
    data = read("tagging", tmp_path, train="all", dev="dev.parquet", test="all", overlap="report")
    assert data.train.fields == [("play", "some", "jazz"), ("stop",)]
    assert (targets(data.dev), data.labels) == ([[2, 0]], ["B-genre", "I-genre", "O"])


def test_questions_in_tables_and_a_dev_share_by_context(tmp_path):
    rows = [
        {"q": f"What {part}?", "c": f"{CONTEXT} {number}", "a": {"text": ["metal"], "answer_start": [10]}}
        for number in range(40)
        for part in "xy"
    ]
    jsonl(tmp_path / "train.jsonl", *rows)
    jsonl(tmp_path / "test.jsonl", {"q": "Who?", "c": CONTEXT, "a": [{"text": "Gold", "answer_start": 17}]})
    data = read("questions", tmp_path, dev=None, selection="dev", question="q", context="c", answers="a")
    contexts = [{context for _, context in split.fields} for split in (data.train, data.dev)]
    assert not contexts[0] & contexts[1] and 2 * len(contexts[1]) == len(data.dev) >= 2
    assert targets(data.test) == [[17, 21]]
