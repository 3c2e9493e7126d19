"""Exports of annotation tools, and files of tags, are recognised by `init` as a run reads them."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from components.cli.onboarding.splits import split_files
from components.core.errors import DataError
from components.data.facts import Facts
from components.data.sampling import read_rows
from components.data.tasks.kinds import find_kind
from components.data.understanding import understand
from tests.data.public_inputs import LABELS, TEXTS, made

HASHES = {"_input_hash": 1, "_task_hash": 2, "answer": "accept"}
FIRST = {text: text.split()[0] for text in TEXTS}


def lines(row: Callable[[str, str], dict[str, Any]], *, studio: bool = False) -> str:
    """An export of lines, or of Label Studio, whose tasks have one result each."""
    given = [row(text, label) for text, label in zip(TEXTS, LABELS, strict=True)]
    if studio:
        data = [{"id": n, "data": {"text": text}} for n, text in enumerate(TEXTS)]
        results = [{"from_name": "mood", "to_name": "text"} | each for each in given]
        return json.dumps([a | {"annotations": [{"result": [b]}]} for a, b in zip(data, results, strict=True)])
    return "".join(json.dumps({"id": n} | each) + "\n" for n, each in enumerate(given))


def tokens(text: str) -> list[dict[str, Any]]:
    words = enumerate(re.finditer(r"\S+", text))
    return [{"text": word[0], "start": word.start(), "end": word.end(), "id": number} for number, word in words]


def span(text: str, *, several: bool = False) -> dict[str, Any]:
    """The first word of a text."""
    return {"start": 0, "end": len(FIRST[text]), "text": FIRST[text]} | (
        {"labels": ["WORD"]} if several else {"label": "WORD"}
    )


CLASSES, LABELLED = {"kind": "classification", "text": "text"}, {"label": "label"}
EXPORTS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    # Name -> file, content, format, keys.
    "Label Studio, choices": (
        "export.json",
        lines(lambda text, label: {"type": "choices", "value": {"choices": [label]}}, studio=True),
        "label-studio",
        CLASSES,
    ),
    "Label Studio, spans": (
        "export.json",
        lines(lambda text, label: {"type": "labels", "value": span(text, several=True)}, studio=True),
        "label-studio",
        {"kind": "tagging"},
    ),
    "doccano, labels": (
        "all.jsonl",
        lines(lambda text, label: {"text": text, "label": [label]}),
        "jsonl",
        CLASSES | LABELLED,
    ),
    "doccano, spans": (
        "all.jsonl",
        lines(lambda text, label: {"text": text, "label": [[0, 3, "PER"]]}),
        "doccano",
        {"kind": "tagging"},
    ),
    "doccano, entities": (
        "all.jsonl",
        lines(
            lambda text, label: {
                "text": text,
                "entities": [{"label": "PER", "start_offset": 0, "end_offset": 3}],
                "relations": [],
            }
        ),
        "doccano",
        {"kind": "tagging"},
    ),
    "Prodigy, choice": (
        "set.jsonl",
        lines(
            lambda text, label: HASHES | {"text": text, "options": [{"id": "good"}, {"id": "bad"}], "accept": [label]}
        ),
        "prodigy",
        CLASSES,
    ),
    "Prodigy, yes or no": (
        "set.jsonl",
        lines(
            lambda text, label: (
                HASHES | {"text": text, "label": "COMPLAINT", "answer": "accept" if label == "bad" else "reject"}
            )
        ),
        "prodigy",
        CLASSES,
    ),
    "Prodigy, spans": (
        "set.jsonl",
        lines(lambda text, label: HASHES | {"text": text, "tokens": tokens(text), "spans": [span(text)]}),
        "prodigy",
        {"kind": "tagging"},
    ),
    "cats of spaCy": (
        "train.jsonl",
        lines(lambda text, label: {"text": text, "cats": {name: float(label == name) for name in ("good", "bad")}}),
        "doccano",
        CLASSES,
    ),
    "CoNLL without a suffix": (
        "eng",
        "-DOCSTART- -X- -X- O\n\n"
        + "".join(
            "".join(f"{word} NN I-NP {'B-PER' if word == 'the' else 'O'}\n" for word in text.split()) + "\n"
            for text in TEXTS
        ),
        "conll",
        {"kind": "tagging", "scheme": "bio"},
    ),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_is_recognised_and_read(name, tmp_path, monkeypatch):
    file, content, form, keys = EXPORTS[name]
    (tmp_path / file).write_text(content)
    rows = read_rows(tmp_path / file)
    assert (rows.format, understand(rows).keys) == (form, understand(rows).keys | keys)
    task, source, said = made(tmp_path / file, tmp_path, monkeypatch)
    facts = Facts(source.kind, find_kind(source.kind).read(task, source))
    assert source.kind == keys["kind"] and sum(facts.rows.values()) == len(TEXTS)
    if keys["kind"] == "tagging":
        return
    assert sorted(facts.classes) == (["accept", "reject"] if "yes" in name else ["bad", "good"])
    assert "2 classes" in said
    assert split_files(tmp_path / file) == {"train": tmp_path / file}


@pytest.mark.parametrize(
    ("text", "start", "end", "stored", "words"),
    [
        ("Ann met Bob", 8, 11, "Bob", ["O", "O", "B-PER"]),
        # Browsers count an emoji as two.
        ("\U0001f600\U0001f600 Bob left", 5, 8, "Bob", ["O", "O", "B-PER", "O"]),
        ("Ann met Bob", 4, 7, "Bob", None),
    ],
)
def test_offsets_are_compared_with_the_stored_characters(tmp_path, text, start, end, stored, words):
    value = {"start": start, "end": end, "labels": ["PER"], "text": stored}
    result = [{"from_name": "kind", "to_name": "text", "type": "labels", "value": value}]
    record = {"id": 1, "data": {"text": text}, "annotations": [{"id": 1, "result": result}]}
    (tmp_path / "export.json").write_text(json.dumps([record]))
    if words is None:
        message = r"task 1: the span 4 to 7 \('PER'\) is 'met', but 'Bob' was annotated; the text has changed"
        with pytest.raises(DataError, match=message):
            read_rows(tmp_path / "export.json")
    else:
        assert read_rows(tmp_path / "export.json").columns["tags"][0] == words
