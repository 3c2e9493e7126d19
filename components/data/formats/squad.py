"""SQuAD JSON, versions 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): questions about paragraphs, answered by spans."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.errors import DataError
from components.data.formats.jsontables import parse_json
from components.data.formats.lines import Reading
from components.data.formats.tables import Opening, Row, Rows


@dataclass(frozen=True)
class Question:
    """A question about a context. `answers`: (first character, text) of each distinct reference answer; empty if the
    question is unanswerable."""

    id: str
    title: str | None
    question: str
    context: str
    answers: tuple[tuple[int, str], ...]


def is_squad(path: Path) -> bool:
    content = parse_json(path, Reading())
    data = content.get("data") if isinstance(content, dict) else None
    return isinstance(data, list) and bool(data) and isinstance(data[0], dict) and "paragraphs" in data[0]


def read_squad(path: Path, reading: Reading) -> Iterator[Question]:
    """Iterate over the questions of a file in order; a question marked `is_impossible` has no answers.

    Raises:
        DataError: the file is not JSON or does not have SQuAD's structure.
    """
    document = parse_json(path, reading)
    for article_index, article in enumerate(_member(document, "data", list, str(path))):
        title = article.get("title") if isinstance(article, dict) else None
        in_article = f"{path}, data[{article_index}]"
        for paragraph_index, paragraph in enumerate(_member(article, "paragraphs", list, in_article)):
            in_paragraph = f"{in_article}.paragraphs[{paragraph_index}]"
            context = _member(paragraph, "context", str, in_paragraph)
            for index, entry in enumerate(_member(paragraph, "qas", list, in_paragraph)):
                identifier = str(_member(entry, "id", str | int, f"{in_paragraph}.qas[{index}]"))
                where = f"{path}, question {identifier}"
                text = _member(entry, "question", str, where)
                answers = [] if entry.get("is_impossible") else _member(entry, "answers", list, where)
                yield Question(identifier, title, text, context, answers_of(answers, where))


def answers_of(entries: list[Any], where: str) -> tuple[tuple[int, str], ...]:
    """(first character, text) of each distinct answer, in order.

    Raises:
        DataError: an answer has no text or answer_start.
    """
    result = dict.fromkeys(
        (_member(entry, "answer_start", int, f"{where}, an answer"), _member(entry, "text", str, f"{where}, an answer"))
        for entry in entries
    )
    return tuple(result)


def _member(value: Any, key: str, kind: Any, where: str) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get(key), kind):
        expected = {str: "text", list: "a list", int: "a number"}.get(kind, "text or a number")
        raise DataError(f"{where}: no {key!r} ({expected}); SQuAD files have data, paragraphs, context, qas, answers")
    return value[key]


def squad_rows(file: Opening) -> Rows:
    rows: Iterator[tuple[str, Row]] = (
        (
            each.id,
            {"id": each.id, "title": each.title, "question": each.question, "context": each.context}
            | {"answers": {"text": [text for _, text in each.answers], "answer_start": [at for at, _ in each.answers]}},
        )
        for each in read_squad(file.path, file.reading)
    )
    names = ["id", "title", "question", "context", "answers"]
    return file.rows(names, rows, kind="questions")
