"""Tasks in several languages: trained on some, each of them scored as a slice of test."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from components.core.errors import DataError
from components.reporting.evaluations import languages
from components.settings.tasks import TaskSource
from tests.tasks import labelled

ROWS = [("good day", "yes", "en"), ("bad day", "no", "en"), ("guter Tag", "yes", "de"), ("mal jour", "perhaps", "fr")]


def write(path: Path, rows: list[tuple[str, str, str]]) -> None:
    labelled.jsonl(path, *({"text": a, "label": b, "lang": c} for a, b, c in rows))


def read(folder: Path, kind: str = "classification", **settings: Any) -> Any:
    return labelled.read(kind, folder, dev=None, **settings)


def test_a_column_of_languages(tmp_path):
    write(tmp_path / "train.jsonl", ROWS)
    write(tmp_path / "test.jsonl", [(f"{text} again", label, lang) for text, label, lang in ROWS[:3]])
    actual = read(tmp_path, languages="lang")
    # Labels of rows that are not learned are no classes.
    assert actual.labels == ["no", "yes"]
    assert actual.train.fields == [("good day",), ("bad day",)]
    assert actual.test.slices == ["en", "en", "de"]
    assert actual.counts["train_rows_in_other_languages"] == 2
    both = read(tmp_path, languages="lang", train_languages=["en", "fr"])
    assert len(both.train.fields) == 3
    with pytest.raises(DataError, match=r"no row has one of the languages th in the column 'lang'; set language or"):
        read(tmp_path, languages="lang", language="th")


def test_test_files_of_further_languages(tmp_path):
    write(tmp_path / "train.jsonl", ROWS[:2])
    write(tmp_path / "test.jsonl", [("a fine day", "yes", "")])
    write(tmp_path / "test.de.jsonl", [("ein Tag", "no", "")])
    write(tmp_path / "more.de.jsonl", [("noch ein Tag", "no", "")])
    actual = read(tmp_path, languages={"de": ["test.de.jsonl", "more.de.jsonl"]})
    assert actual.test.slices == ["en", "de", "de"]
    # The languages are no clusters: rows of one language are independent.
    assert actual.test.groups == [None, None, None]


def test_languages_of_tagged_sentences(tmp_path):
    (tmp_path / "train.conll").write_text("Anna B-PER\nsleeps O\n")
    (tmp_path / "test.conll").write_text("Berta B-PER\n")
    (tmp_path / "test.de.conll").write_text("Carla B-PER\nschläft O\n")
    files = {"train": "train.conll", "test": "test.conll", "languages": {"de": "test.de.conll"}}
    assert read(tmp_path, kind="tagging", **files).test.slices == ["en", "de"]
    for name, text in (("train", "Anna\tPROPN"), ("test", "sleeps\tVERB")):
        rows = [
            f"# lang = {lang}\n" + "\t".join(["1", *[text.split()[0], "_", text.split()[1]], *["_"] * 6])
            for lang in ("en", "de")
        ]
        (tmp_path / f"{name}.conllu").write_text("\n\n".join(rows) + "\n\n")
    with pytest.raises(DataError, match="holds only one tag"):
        read(tmp_path, kind="tagging", scheme="none", train="train.conllu", test="test.conllu", languages="lang")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"languages": "lang", "slice": "topic"}, "set either slice or languages"),
        ({"languages": {"en": "test.en.jsonl"}}, "'en' is the language of test already"),
        ({"train_languages": ["en"]}, "train_languages has no effect without a column"),
        (
            {"languages": "lang", "kind": "questions", "train": "a.json", "test": "b.json"},
            "squad has no column of languages",
        ),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(ValidationError, match=message):
        TaskSource.model_validate({"path": "data", **settings})


def test_the_table_of_the_report():
    slices = {"de": {"rows": 5.0, "f1": 0.5}, "th": {"rows": 7.0, "f1": 0.25}, "en": {"rows": 3.0, "f1": 1.0}}
    evaluation = {
        "learned_languages": ["en"],
        "main": "f1",
        "titles": {"f1": "macro F1"},
        "budgets": [5, 20],
        "unit": "labels per class",
        "systems": [{"system": "bert-adapted", "budgets": [{"slices": {}}, {"slices": slices}]}],
    }
    table = languages(evaluation)
    assert table is not None
    assert table.columns == ["system", "en (learned)", "th (transfer)", "de (transfer)"]
    assert table.rows == [["bert-adapted", "1.000", "0.250", "0.500"]]
    assert languages({"learned_languages": [], "main": "f1"}) is None
