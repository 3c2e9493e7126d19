from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.core.errors import DataError
from components.data.formats.lines import Reading
from components.data.formats.squad import Question, read_squad


def squad(tmp_path: Path, *qas: Any, context: Any = "Iron is a metal.") -> list[Question]:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"data": [{"title": "Iron", "paragraphs": [{"context": context, "qas": list(qas)}]}]}))
    return list(read_squad(path, Reading()))


def test_both_versions(tmp_path: Path) -> None:
    answers = [{"text": "a metal", "answer_start": 8}, {"text": "metal", "answer_start": 10}]
    plain = {"id": 7, "question": "What is iron?", "answers": [*answers, answers[0]]}
    impossible = {
        "id": "b",
        "question": "Who?",
        "is_impossible": True,
        "answers": [],
        "plausible_answers": answers,
    }
    assert squad(tmp_path, plain, impossible) == [
        Question("7", "Iron", "What is iron?", "Iron is a metal.", ((8, "a metal"), (10, "metal"))),
        Question("b", "Iron", "Who?", "Iron is a metal.", ()),
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"question": "x"}, r"a\.json, data\[0\]\.paragraphs\[0\]\.qas\[0\]: no 'id' \(text or a number\)"),
        ({"id": "k"}, r"question k: no 'question' \(text\)"),
        ({"id": "k", "question": "x"}, r"question k: no 'answers' \(a list\)"),
        ({"id": "k", "question": "x", "answers": [{"text": "x"}]}, r"k, an answer: no 'answer_start' \(a number\)"),
        (
            {"id": "k", "question": "x", "answers": [{"text": " ", "answer_start": 0}]},
            "question k: an answer is empty; mark the question is_impossible, or remove the answer",
        ),
    ],
)
def test_a_missing_member_is_named(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        squad(tmp_path, entry)


def test_a_file_that_is_not_squad(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[]")
    with pytest.raises(
        DataError, match=r"a\.json: no 'data' \(a list\); SQuAD files have data, paragraphs, context, qas"
    ):
        list(read_squad(path, Reading()))
    with pytest.raises(DataError, match=r"paragraphs\[0\]: no 'context' \(text\)"):
        squad(tmp_path, context=None)
