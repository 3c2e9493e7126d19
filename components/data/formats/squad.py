"""SQuAD JSON, versions 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): questions about paragraphs, answered by spans."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.core.errors import DataError
from components.data.formats.jsontables import parse_json
from components.data.formats.lines import Reading
from components.data.formats.tables import Opening, Row, Rows


def is_squad(path: Path) -> bool:
    content = parse_json(path, Reading())
    data = content.get("data") if isinstance(content, dict) else None
    return isinstance(data, list) and bool(data) and isinstance(data[0], dict) and "paragraphs" in data[0]


def squad_rows(file: Opening) -> Rows:
    """The questions of a file in order; one that is marked `is_impossible` has no answers.

    Raises:
        DataError: the file is not JSON or does not have SQuAD's structure.
    """
    return file.rows(["id", "title", "question", "context", "answers"], enumerate(_questions(file), 1))


def _questions(file: Opening) -> Iterator[Row]:
    document = parse_json(file.path, file.reading)
    for article_index, article in enumerate(member_of(document, "data", list, str(file.path))):
        title = article.get("title") if isinstance(article, dict) else None
        in_article = f"{file.path}, data[{article_index}]"
        for paragraph_index, paragraph in enumerate(member_of(article, "paragraphs", list, in_article)):
            in_paragraph = f"{in_article}.paragraphs[{paragraph_index}]"
            context = member_of(paragraph, "context", str, in_paragraph)
            for index, entry in enumerate(member_of(paragraph, "qas", list, in_paragraph)):
                identifier = str(member_of(entry, "id", str | int, f"{in_paragraph}.qas[{index}]"))
                where = f"{file.path}, question {identifier}"
                text = member_of(entry, "question", str, where)
                answers = [] if entry.get("is_impossible") else member_of(entry, "answers", list, where)
                yield {"id": identifier, "title": title, "question": text, "context": context, "answers": answers}


def member_of(value: Any, key: str, kind: Any, where: str) -> Any:
    """A member of an object.

    Raises:
        DataError: it is missing, or of another type than `kind`.
    """
    if not isinstance(value, dict) or not isinstance(value.get(key), kind):
        expected = {str: "text", list: "a list", int: "a number"}.get(kind, "text or a number")
        raise DataError(f"{where}: no {key!r} ({expected}); SQuAD files have data, paragraphs, context, qas, answers")
    return value[key]
