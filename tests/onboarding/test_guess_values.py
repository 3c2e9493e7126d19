"""Guesses look at values, not only at names and numbers of values."""

import random
from typing import Any

import pandas as pd
import pytest

from components.core.errors import DataError
from components.data.facts import language_of, script_of
from components.data.sampling import Rows
from components.data.understanding import understand
from headstart.tables import InputError
from headstart.tasks import read_task

TOPICS = {
    "work": ["boss", "office", "salary", "overtime", "colleague"],
    "health": ["pain", "doctor", "hospital", "fever", "medicine"],
    "family": ["mother", "father", "child", "house", "dinner"],
}
SMALL = ["i", "am", "so", "very", "tired", "of", "the", "this", "today", "and", "my"]


def table(columns: str, values: Any) -> Rows:
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
    rows = table("연령 성별 상황 문장", values)
    meant = understand(rows)
    assert meant.keys == {"kind": "classification", "text": "문장", "label": "상황"}
    assert meant.others == ["연령", "성별"]
    # Nothing is told by these texts: the fewest values.
    untold = [(age, sex, topic, text) for (age, sex, _, text), (topic, _) in zip(values, told(300, 5), strict=True)]
    assert understand(table("연령 성별 상황 문장", untold)).keys["label"] in ("연령", "성별")


def test_a_word_for_a_person_is_no_label():
    assert (
        understand(table("gender mood text", [("fm"[n % 2], "xyz"[n % 3], f"a b c {n}") for n in range(12)])).keys[
            "label"
        ]
        == "mood"
    )


@pytest.mark.parametrize(
    ("columns", "row", "text", "label"),
    [
        ("feedback said", lambda n: (n % 2, told(60)[n][1]), "said", "feedback"),
        ("feedback said", lambda n: (str(n % 2), told(60)[n][1]), "said", "feedback"),
        ("said feedback", lambda n: (told(60)[n][1], ["up", "down"][n % 2]), "said", "feedback"),
        ("comment story end", lambda n: (["yes", "no"][n % 2], told(60)[n][1], told(60)[n][0]), "story", "end"),
        ("text said mood", lambda n: (f"https://x.org/{n}", told(60)[n][1], "xy"[n % 2]), "said", "mood"),
        ("type said mood", lambda n: ("tweet", told(60)[n][1], "xy"[n % 2]), "said", "mood"),
        # Short texts are texts if there are no longer ones.
        ("text label", lambda n: (["yes", "no", "well"][n % 3], "xy"[n % 2]), "text", "label"),
    ],
)
def test_a_name_alone_is_no_text_and_no_label(columns, row, text, label):
    keys = understand(table(columns, map(row, range(60)))).keys
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
    proposed = understand(table(f"{names} text label", rows), text=["text"], label="label").group
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
    rows = table(columns, [(f"what is it {n}", *things, *row(n)) for n in range(30)])
    result = understand(rows).keys
    expected = {"kind": "choice", "text": names[0], "choices": names[1:-1], "label": label}
    assert result == expected | ({"answer": answer} if answer else {})
    with pytest.raises(InputError, match=rf"{label!r} is the number, letter or text of one of several choices"):
        read_task(pd.DataFrame(rows.columns))


def test_columns_that_are_no_choices():
    rows = table("text answer1 answer2 label", [(told(30)[n][1], "yes", "no", "xy"[n % 2]) for n in range(30)])
    assert understand(rows).keys == {"kind": "classification", "text": "text", "label": "label"}
    several = table("question choices key", [("what?", {"text": ["a", "b"]}, "AB"[n % 2]) for n in range(30)])
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


@pytest.mark.parametrize("language", LANGUAGES)
def test_other_languages_are_none_of_those_that_are_told_apart(language):
    assert language_of([LANGUAGES[language]]) == "und"


@pytest.mark.parametrize(
    "texts",
    [
        ["paracetamol 500mg tablet", "ibuprofen 200 mg"],
        ["Python Java C++", "Kubernetes Docker"],
        ["Cardiomyopathy", "Atrial fibrillation"],
        ["a"],
        ["ok", "500 \u00b5g"],
        ["\u03b2-blocker tablet", "ibuprofen 200 mg"],
    ],
)
def test_short_lists_of_terms_are_english(texts):
    assert language_of(texts) == "en"


def test_languages_that_are_told_apart():
    assert language_of(["je voudrais réserver une table pour deux personnes dans ce restaurant"]) == "fr"
    assert language_of(["ik wil graag een tafel reserveren voor twee personen"]) == "nl"
    assert language_of(["Я хочу заказать еду, и мы были там, потому что он очень хороший. " * 4]) == "ru"
    assert language_of(["أريد أن أطلب الطعام من هذا المطعم لأنه جيد جدا"]) == "ar"
    assert language_of(["vorrei prenotare un tavolo"]) == "it" and language_of(["\u0645\u0637\u0639\u0645"]) == "ar"
    assert [language_of(texts) for texts in (["12", "7"], [""], ["toner empty", "printer jams"])] == ["en"] * 3
    assert [script_of([text]) for text in (LANGUAGES["id"], LANGUAGES["uk"], "กขค")] == ["Latin", "Cyrillic", "Thai"]
    rows = [{"text": f"{LANGUAGES['id']} {n}", "label": "xy"[n % 2]} for n in range(8)]
    task = read_task(rows)
    assert task.language == "und"
    assert "language not recognised, Latin script (--language)" in "\n".join(task.notes)
