"""Formats, splits, columns and kinds that are guessed."""

import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from components.cli.onboarding.splits import split_files
from components.core.errors import DataError
from components.data.facts import Facts, language_of, script_of
from components.data.sampling import Rows, read_rows
from components.data.tasks.kinds import find_kind
from components.data.understanding import text_columns, understand
from components.settings.tasks import TaskSource
from headstart.tables import InputError
from headstart.tasks import read_task


def rows(*result: dict[str, Any]) -> Rows:
    return Rows({name: [row.get(name) for row in result] for name in result[0]}, "jsonl")


def table(count: int, **columns: Any) -> Rows:
    """Columns of values that repeat, or of texts with the number of their row for {}."""
    return Rows(
        {
            name: [values.format(row) if isinstance(values, str) else values[row % len(values)] for row in range(count)]
            for name, values in columns.items()
        },
        "jsonl",
    )


CLASSES = {"kind": "classification", "text": "text", "label": "label"}
NAMES = {"label": "label_name"}


@pytest.mark.parametrize(
    ("name", "text", "form", "columns"), yaml.safe_load(Path(__file__).with_name("formats.yaml").read_text())
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


MEASURED = {"kind": "regression", "text": "text", "score": "score"}
FLAGS = {"kind": "multilabel", "text": "text", "labels": ["toxic", "rude"]}
SEVERAL = CLASSES | {"kind": "multilabel"}
NUMBERS = range(99)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (table(2, text=["good film", "bad"], label=["1", "0"]), CLASSES),
        (table(6, id="{}", body="a long text {}", mood=["x", "y"]), CLASSES | {"text": "body", "label": "mood"}),
        (table(6, text="a b c {}", label=[0, 1], label_name=["x", "y"]), CLASSES | NAMES),
        (table(9, text="a b c {}", label=[0, 1], other=["x", "y", "z"]), CLASSES),
        # Scripts without spaces: a sentence with a number is no identifier.
        (
            table(6, no=NUMBERS, รายละเอียด="พัสดุหมายเลข{}ยังไม่ถึง", ประเภท=["ก", "ข"]),
            {"kind": "classification", "text": "รายละเอียด", "label": "ประเภท"},
        ),
        (
            table(6, no=NUMBERS, 内容="{}日に注文した荷物が届きません", 種類=["a", "b"]),
            {"kind": "classification", "text": "内容", "label": "種類"},
        ),
        (
            table(2, premise=["a", "c"], hypothesis=["b", "d"], label=["yes", "no"]),
            {"kind": "pair", "first": "premise", "second": "hypothesis", "label": "label"},
        ),
        (
            table(2, sentence1=["a", "c"], sentence2=["b", "d"], label=[4.5, 1.0]),
            {"kind": "similarity", "first": "sentence1", "second": "sentence2", "score": "label"},
        ),
        (table(2, text=["a b", "c d"], score=[0.25, 3.5]), MEASURED),
        # Signs of percent and currencies stand beside numbers.
        (table(25, text="a {}", score=[f"{7 * n}%" for n in NUMBERS]), MEASURED),
        (table(8, text="a {}", price=["x"], score=[f"$1,{200 + n}.50" for n in NUMBERS]), MEASURED),
        (table(8, text="a {}", score="{},5 \u20ac"), MEASURED),
        (table(2, text=["a", "b"], label=[["x", "y"], []]), SEVERAL),
        (table(8, text="t {}", label=["x;y", "x", "y", "y;x"]), SEVERAL | {"label_separator": ";"}),
        (table(8, text="t {}", label=["<x><y> ", "<x>", "<y>", " <y><x>"]), SEVERAL | {"label_separator": "><"}),
        (table(8, text="t {}", label=["|x|y|", "|x|", "|y|", "|y|x|"]), SEVERAL | {"label_separator": "|"}),
        # Labels that spaces separate are also alone; names of several words are not.
        (table(10, text="t {}", label=["x y", "x", "y", "z", "z y"]), SEVERAL | {"label_separator": " "}),
        (table(9, text="t {}", label=["new york", "york", "rome"]), CLASSES),
        # A column of languages is a label if there is no other one.
        (table(9, text="a b {}", queue=["x", "y", "z"], lang=["a", "b"]), CLASSES | {"label": "queue"}),
        (table(9, text="a b {}", lang=["a", "b"]), CLASSES | {"label": "lang"}),
        # A label of one row is no reason to take the labels of a row for one.
        (
            table(21, text="t {}", label=["x;y", "x", "y", "z;x", "y;z"] * 4 + ["rare;x"]),
            SEVERAL | {"label_separator": ";"},
        ),
        (table(2, text=["a b c", "d e f"], toxic=["1", "0"], rude=["0", "1"]), FLAGS),
        (table(3, text=["a b c", "d e f", "g"], toxic=["x", "", ""], rude=["", "X", ""]), FLAGS),
        (
            table(1, tokens=[["Jim", "ran"]], ner_tags=[["B-PER", "O"]]),
            {"kind": "tagging", "words": "tokens", "tags": "ner_tags", "scheme": "bio"},
        ),
        (
            table(1, words=[["a", "b"]], tags=[["DET", "NOUN"]]),
            {"kind": "tagging", "words": "words", "tags": "tags", "scheme": "none"},
        ),
        # A column `answer` has spans of the contexts; otherwise it is a label.
        (
            table(9, question="q", context="c {}", answer="{}"),
            {"kind": "questions", "question": "question", "context": "context", "answers": "answer"},
        ),
        (
            table(1, question="q", choices=[["a", "b"]], answer="B"),
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
    subjects = [f"about my order {n}" for n in range(30)]
    given = table(90, subject=subjects, body="a long text {} of mine", queue=["x", "y", "z"])
    note = "column 'body' is the text, 'queue' is the label; 'subject' may also be the text (--text"
    assert understand(given).reasons == [f"{note}; --text body,subject reads both)"]
    assert understand(given, text=["body"], label="queue", kind="multilabel").reasons == [f"{note})"]
    both = {"kind": "pair", "first": "body", "second": "subject", "label": "queue"}
    assert understand(given, text=("body", "subject"), label="queue").keys == both


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
    given = table(8, text=["a b c"], label=["x", "y"], part=["Train", "test"], other=["a", "test"])
    assert understand(given).reasons[1:] == [
        "warning: column 'part' names the split of each row (test, train), and is not used; write a file for each "
        "split, such as train.csv and test.csv in one folder"
    ]


@pytest.mark.parametrize("value", ["['B-PER', 'O']", '["B-PER", "O"]', "['B-PER' 'O']"])
def test_lists_of_tags_as_text_are_refused(value):
    with pytest.raises(
        DataError, match="column 'tags' has lists of tags as text .* save the table as parquet or jsonl"
    ):
        understand(table(4, tokens=["['Jim', 'ran']"], tags=[value]))


def test_a_few_rows_with_a_label_are_enough():
    """Most rows of a file may wait for a label; a filled column with another name of a label comes first."""
    few, text = ["a", "b", *[None] * 28], "the text of message {}"
    assert understand(table(30, text=text, source=["web"], label=few)).keys == CLASSES
    assert understand(table(30, text=text, label=["web"], category=few)).keys == CLASSES
    with pytest.raises(DataError, match="no column looks like a label"):
        understand(table(30, text=text, source=["web"], label=["a", *[None] * 29]))


def test_columns_can_be_named_and_others_are_mentioned():
    given = table(8, text="t {}", note="n {}", action=["a", "b"], place=["c", "d"])
    meant = understand(given)
    assert (meant.keys["label"], meant.others) == ("action", ["place"])
    assert meant.reasons == [
        "column 'text' is the text, 'action' is the label; 'place' may also be the label (--label)"
    ]
    assert understand(given, text=["note"], label="place").keys == CLASSES | {"text": "note", "label": "place"}
    with pytest.raises(DataError, match="no column 'x'; the columns are 'text', 'note', 'action', 'place'"):
        understand(given, label="x")
    with pytest.raises(DataError, match="no column looks like a label"):
        understand(table(2, text=["a", "b"]))


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
        understand(table(1, text="a b", label="x"), kind="tagging")
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
    values = [f"v{row}" for row in range(values)]
    result = understand(table(200, text="text {} of many", label=["a", "b"], **{column: values})).group
    assert (result and result[0]) == (column if chosen else None)
    each = 200 / len(values)
    assert result is None or f": {len(values)} values, {each:.1f} rows each, which" in result[1]


TOPICS = {
    "work": ["boss", "office", "salary", "overtime", "colleague"],
    "health": ["pain", "doctor", "hospital", "fever", "medicine"],
    "family": ["mother", "father", "child", "house", "dinner"],
}
SMALL = ["i", "am", "so", "very", "tired", "of", "the", "this", "today", "and", "my"]


def listed(columns: str, values: Any) -> Rows:
    return Rows(dict(zip(columns.split(), map(list, zip(*values, strict=True)), strict=True)), "csv")


def told(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """(topic, sentence about it)."""
    draw = random.Random(seed)
    topics = [draw.choice([*TOPICS]) for _ in range(count)]
    return [(topic, " ".join(draw.choice(TOPICS[topic] + SMALL) for _ in range(9))) for topic in topics]


def test_the_label_is_what_the_texts_tell():
    """The sex of the speaker has fewer values than the situation, and the texts do not tell it."""
    draw = random.Random(1)
    values = [(draw.choice(["30", "40"]), draw.choice(["남성", "여성"]), *row) for row in told(300)]
    rows = listed("연령 성별 상황 문장", values)
    meant = understand(rows)
    assert meant.keys == {"kind": "classification", "text": "문장", "label": "상황"}
    assert meant.others == ["연령", "성별"]
    # Nothing is told by these texts: the fewest values.
    untold = [(age, sex, topic, text) for (age, sex, _, text), (topic, _) in zip(values, told(300, 5), strict=True)]
    assert understand(listed("연령 성별 상황 문장", untold)).keys["label"] in ("연령", "성별")


@pytest.mark.parametrize(
    ("columns", "row", "text", "label"),
    [
        ("feedback said", lambda n: (n % 2, told(60)[n][1]), "said", "feedback"),
        ("feedback said", lambda n: (str(n % 2), told(60)[n][1]), "said", "feedback"),
        ("said feedback", lambda n: (told(60)[n][1], ["up", "down"][n % 2]), "said", "feedback"),
        ("comment story end", lambda n: (["yes", "no"][n % 2], told(60)[n][1], told(60)[n][0]), "story", "end"),
        ("text said mood", lambda n: (f"https://x.org/{n}", told(60)[n][1], "xy"[n % 2]), "said", "mood"),
        ("type said mood", lambda n: ("tweet", told(60)[n][1], "xy"[n % 2]), "said", "mood"),
        # A word for a person is no label.
        ("gender mood text", lambda n: ("fm"[n % 2], "xyz"[n % 3], f"a b c {n}"), "text", "mood"),
        # Short texts are texts if there are no longer ones.
        ("text label", lambda n: (["yes", "no", "well"][n % 3], "xy"[n % 2]), "text", "label"),
    ],
)
def test_a_name_alone_is_no_text_and_no_label(columns, row, text, label):
    keys = understand(listed(columns, map(row, range(60)))).keys
    assert (keys["text"], keys["label"]) == (text, label)


def dialogues() -> list[tuple[int, int]]:
    """(dialogue, place within it)."""
    draw = random.Random(2)
    return [(number, place) for number in range(60) for place in range(draw.randint(3, 12))]


@pytest.mark.parametrize(
    ("names", "group"),
    [
        ("Dialogue_ID Utterance_ID", "Dialogue_ID"),
        ("doc_id page", "doc_id"),
        ("thread order", "thread"),
        ("part page", None),
    ],
)
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_position_is_no_group(names, group, shuffled):
    rows = [(*place, f"text {n} of many", "xy"[n % 2]) for n, place in enumerate(dialogues())]
    if shuffled and "page" not in names and "order" not in names:
        random.Random(3).shuffle(rows)
    proposed = understand(listed(f"{names} text label", rows), text=["text"], label="label").group
    assert (proposed and proposed[0]) == group


@pytest.mark.parametrize(
    ("columns", "row", "label", "answer"),
    [
        ("question choice0 choice1 choice2 choice3 choice4 label", lambda n: (n % 5,), "label", None),
        ("question choice0 choice1 choice2 choice3 choice4 n", lambda n: (n % 5,), "n", None),
        ("ctx ending0 ending1 ending2 ending3 gold", lambda n: (n % 4,), "gold", None),
        ("question A B C D answer", lambda n: ("ABCD"[n % 4],), "answer", "letter"),
        ("question opa opb opc opd cop", lambda n: (n % 4 + 1,), "cop", "from_one"),
        ("question option_1 option_2 option_3 answer", lambda n: (n % 3 + 1,), "answer", "from_one"),
        ("premise choice1 choice2 label", lambda n: (str(n % 2),), "label", None),
        ("question option1 option2 correct", lambda n: (f"a thing {n % 2 + 1}",), "correct", "text"),
    ],
)
def test_choices_in_columns(columns, row, label, answer):
    names = columns.split()
    things = [f"a thing {number}" for number in range(1, len(names) - 1)]
    rows = listed(columns, [(f"what is it {n}", *things, *row(n)) for n in range(30)])
    result = understand(rows).keys
    expected = {"kind": "choice", "text": names[0], "choices": names[1:-1], "label": label}
    assert result == expected | ({"answer": answer} if answer else {})
    with pytest.raises(InputError, match=rf"{label!r} is the number, letter or text of one of several choices"):
        read_task(pd.DataFrame(rows.columns))


def test_columns_that_are_no_choices():
    rows = listed("text answer1 answer2 label", [(told(30)[n][1], "yes", "no", "xy"[n % 2]) for n in range(30)])
    assert understand(rows).keys == {"kind": "classification", "text": "text", "label": "label"}
    several = listed("question choices key", [("what?", {"text": ["a", "b"]}, "AB"[n % 2]) for n in range(30)])
    for given, kind in ((rows, "choice"), (several, None)):
        with pytest.raises(DataError, match="a choice needs columns of the prompt, the choices and the answer"):
            understand(given, kind=kind)


LANGUAGES = {
    "id": "Saya ingin memesan makanan di restoran yang dekat dengan rumah saya. Tolong kirimkan pesanan ini secepat "
    "mungkin karena anak saya sudah lapar dan kami tidak punya waktu untuk memasak di rumah. Harga yang ditawarkan di "
    "sini sangat murah dan pelayanan di toko ini baik sekali untuk semua orang yang datang.",
    "tr": "Bu ürün çok güzel ve kaliteli, herkese tavsiye ederim. Kargo da hızlı geldi, o kadar memnun kaldım ki bir "
    "tane daha alacağım. Ama fiyatı biraz pahalı, daha ucuz olabilirdi diye düşünüyorum.",
    "ca": "Aquest producte és molt bo i el recomano a tothom. La qualitat és excel·lent i el preu també és correcte, "
    "però l'enviament va trigar una mica. Tot i això, crec que és una bona compra i que els meus amics també el "
    "voldran comprar perquè no és gaire car i les instruccions són clares per a tothom.",
    "sv": "Jag tycker att den här filmen är mycket bra och jag vill se den igen med en vän som också gillar den.",
    "af": "Ek wil graag 'n tafel vir twee mense bespreek, maar die restaurant is nie oop nie en niemand antwoord nie.",
    "da": "Jeg vil gerne bestille et bord til to personer i aften, men ingen svarer i telefonen.",
    "pl": "Chciałbym zarezerwować stolik dla dwóch osób, ale nikt nie odbiera telefonu.",
    "vi": "Tôi muốn đặt món ăn ở nhà hàng này vì nó rất ngon",
    "uk": "Я хочу замовити їжу в цьому ресторані, бо він дуже добрий і недорогий.",
    "fa": "من می خواهم از این رستوران غذا سفارش بدهم چون خیلی خوب است",
    "he": "אני רוצה להזמין אוכל מהמסעדה הזאת כי היא טובה מאוד",
}


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        # Other languages are none of those that are told apart.
        *(([text], "und") for text in LANGUAGES.values()),
        (["ผมไปจ่ายเงิน", "เมื่อวาน"], "th"),
        (["the price of it is what"], "en"),
        (["das ist nicht der Fall und ich"], "de"),
        (["私は行きます", "日本語です"], "ja"),
        (["中文句子"], "zh"),
        (["je voudrais réserver une table pour deux personnes dans ce restaurant"], "fr"),
        (["ik wil graag een tafel reserveren voor twee personen"], "nl"),
        (["Я хочу заказать еду, и мы были там, потому что он очень хороший. " * 4], "ru"),
        (["أريد أن أطلب الطعام من هذا المطعم لأنه جيد جدا"], "ar"),
        (["\u0645\u0637\u0639\u0645"], "ar"),
        (["vorrei prenotare un tavolo"], "it"),
        # Short lists of terms look like any language.
        (["paracetamol 500mg tablet", "ibuprofen 200 mg"], "en"),
        (["Python Java C++", "Kubernetes Docker"], "en"),
        (["Cardiomyopathy", "Atrial fibrillation"], "en"),
        (["toner empty", "printer jams"], "en"),
        (["ok", "500 \u00b5g"], "en"),
        (["\u03b2-blocker tablet", "ibuprofen 200 mg"], "en"),
        *(([text], "en") for text in ("xyzzy", "a", "", "12")),
    ],
)
def test_languages(texts, language):
    assert language_of(texts) == language


def test_scripts_and_a_language_that_is_not_recognised():
    assert [script_of(text) for text in (LANGUAGES["id"], LANGUAGES["uk"], "กขค")] == ["latin", "cyrillic", "thai"]
    rows = [{"text": f"{LANGUAGES['id']} {n}", "label": "xy"[n % 2]} for n in range(8)]
    task = read_task(rows)
    assert task.language == "und"
    assert "language not recognised, Latin script (--language)" in "\n".join(task.notes)
