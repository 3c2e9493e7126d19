"""SQuAD JSON, versions 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): questions about paragraphs, answers as spans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.errors import DataError
from components.formats.lines import Reading
from components.formats.tables import parse_json


@dataclass(frozen=True)
class Question:
    """One question and its context; `answers` are (first character, text), none where it cannot be answered."""

    id: str
    title: str | None
    question: str
    context: str
    answers: tuple[tuple[int, str], ...]


def read_squad(path: Path, reading: Reading) -> Iterator[Question]:
    """The questions of a file in order.

    A question that is marked `is_impossible` has no answers, whatever `plausible_answers` says.

    Raises:
        DataError: no JSON, or not laid out as SQuAD: the message names what is missing and where.
    """
    document = parse_json(path, reading)
    for number, article in enumerate(_member(document, "data", list, str(path))):
        title = article.get("title") if isinstance(article, dict) else None
        for place, paragraph in enumerate(_member(article, "paragraphs", list, f"{path}, data[{number}]")):
            where = f"{path}, data[{number}].paragraphs[{place}]"
            context = _member(paragraph, "context", str, where)
            for index, entry in enumerate(_member(paragraph, "qas", list, where)):
                spot = f"{where}.qas[{index}]"
                identifier = str(_member(entry, "id", str | int, spot))
                named = f"{path}, question {identifier}"
                text = _member(entry, "question", str, named)
                given = [] if entry.get("is_impossible") else _member(entry, "answers", list, named)
                yield Question(identifier, title, text, context, answers_of(given, named))


def answers_of(entries: list[Any], where: str) -> tuple[tuple[int, str], ...]:
    """(first character, text) of each distinct answer, in order; `entries` as in SQuAD JSON.

    Raises:
        DataError: an answer without text or answer_start, or with an empty text.
    """
    found = dict.fromkeys(
        (_member(entry, "answer_start", int, f"{where}, an answer"), _member(entry, "text", str, f"{where}, an answer"))
        for entry in entries
    )
    if any(not text.strip() for _, text in found):
        raise DataError(f"{where}: an answer is empty; mark the question is_impossible, or remove the answer")
    return tuple(found)


def _member(value: Any, key: str, kind: Any, where: str) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get(key), kind):
        raise DataError(f"{where}: no {key!r} ({_named(kind)}); SQuAD holds data, paragraphs, context, qas, answers")
    return value[key]


def _named(kind: Any) -> str:
    return {str: "text", list: "a list", int: "a number"}.get(kind, "text or a number")
