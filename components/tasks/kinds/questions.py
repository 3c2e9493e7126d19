"""Questions about a context, answered by a span of it, or by nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import category

from components.errors import DataError
from components.formats.lines import Reading
from components.formats.squad import Question, answers_of, read_squad
from components.formats.textkey import text_key
from components.scoring.questions import Questions
from components.settings.tasks import TaskSource
from components.tasks.data import Answer, Examples, Fields
from components.tasks.kind import Kind
from components.tasks.reading.records import Place, filled, read_records, split_files
from components.tasks.reading.splits import Row, Rows, examples_of, train_of
from components.tasks.task_io import TaskIO, parse_texts


@dataclass(frozen=True)
class _Asked:
    question: Question
    slice: str | None
    id: str | None
    place: Place


def read_questions(name: str, source: TaskSource) -> Examples:
    """Fields are question and context; a target is first and last + 1 character of every reference answer in the
    context, empty where there is none.

    Answers have to stand where they are said to; `wrong_spans` says what becomes of those that do not. Rows with one
    context go to train together, or to dev; only question and context together make two rows the same.

    Raises:
        DataError: a file is missing or not laid out as it should be, a question or context is empty, `wrong_spans` is
            `refuse` and an answer does not match its context (the first one's id, and how many there are); no question
            of train has an answer; the splits do not fit.
    """
    rows: Rows = {}
    wrong: list[str] = []
    counts = {"wrong_spans": 0, "unanswerable": 0}
    for split, path, member in split_files(source):
        for asked in _questions(path, member, source):
            found = asked.question
            spans, bad = _spans(found, move=source.wrong_spans == "move")
            if bad:
                wrong.append(f"{asked.place}: {bad[0]}")
                counts["wrong_spans"] += len(bad)
            if bad and (source.wrong_spans == "drop" or not spans):
                continue
            counts["unanswerable"] += not spans
            row = Row((found.question, found.context), tuple(spans), asked.slice, asked.id, asked.place)
            rows.setdefault(split, []).append(row)
    if wrong and source.wrong_spans == "refuse":
        raise DataError(
            f"{wrong[0]}; {counts['wrong_spans']} answer(s) of {len(wrong)} question(s) do not match their context: "
            f"correct them, or set data.tasks.{name}.wrong_spans to move or drop"
        )
    for split in ("train", "dev", "test"):
        if source.files(split) and not rows.get(split):
            raise DataError(f"{source.path}/{' + '.join(source.files(split))}: holds no question that can be used")
    if not any(row.target for row in rows["train"]):
        raise DataError(f"{train_of(source)}: no question has an answer")
    return examples_of(
        name,
        source,
        rows,
        labels=[],
        target=lambda row: [offset for span in row.target for offset in span],
        group=lambda row: text_key(row.fields[1]),
        counts=counts,
    )


def _questions(path: Path, member: str, source: TaskSource) -> Iterator[_Asked]:
    if source.format_of(path.name) == "squad":
        for number, question in enumerate(read_squad(path, Reading()), 1):
            place = Place(str(path), number, "question")
            part = question.title if source.slice is not None else None
            yield _checked(_Asked(question, part, question.id, place), ("question", "context"))
        return
    columns = [source.question, source.context, source.answers]
    for record in read_records(path, member, source, columns, nested=True):
        asked, context, given = record.values
        texts = [
            filled(text, f"the {what}", column, record.place)
            for text, what, column in zip((asked, context), ("question", "context"), columns[:2], strict=True)
        ]
        answers = answers_of(_entries(given, source.answers, record.place), str(record.place))
        question = Question(record.id or str(record.place), None, texts[0], texts[1], answers)
        yield _Asked(question, record.slice, record.id, record.place)


def _checked(asked: _Asked, columns: tuple[str, str]) -> _Asked:
    for text, what in zip((asked.question.question, asked.question.context), columns, strict=True):
        filled(text, f"the {what}", what, asked.place)
    return asked


def _entries(value: Any, column: str, place: Place) -> list[Any]:
    """Answers as SQuAD lists them, from that or from parallel lists of texts and starts; null for none."""
    if value is None:
        return []
    if isinstance(value, dict) and isinstance(texts := value.get("text"), list):
        starts = value.get("answer_start")
        if isinstance(starts, list) and len(starts) == len(texts):
            return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if isinstance(value, list):
        return value
    raise DataError(
        f"{place}: {column!r} holds no answers; a list of {{text, answer_start}}, or an object with a list of each"
    )


def _spans(asked: Question, *, move: bool) -> tuple[list[tuple[int, int]], list[str]]:
    """(first character, last + 1) of the answers that stand where they should, and what is wrong with the others;
    with `move`, the nearest place of each of those that stand somewhere else."""
    spans: list[tuple[int, int]] = []
    wrong: list[str] = []
    for start, text in asked.answers:
        if start < 0 or asked.context[start : start + len(text)] != text:
            at = asked.context[max(start, 0) : max(start, 0) + len(text)]
            wrong.append(f"id {asked.id}: answer {text[:60]!r} is not at character {start}, where {at[:60]!r} stands")
            start = _nearest_place(asked.context, text, start) if move else -1
        if start >= 0:
            # White space around an answer, or what has no width, belongs to no word of the context.
            read = [place for place, character in enumerate(text) if not _blank(character)]
            spans.append((start + read[0], start + read[-1] + 1) if read else (start, start + len(text)))
    return list(dict.fromkeys(spans)), wrong


def _blank(character: str) -> bool:
    """White space, control and format characters (U+200B): tokenizers may have no piece for them."""
    return character.isspace() or category(character)[0] == "C"


def _nearest_place(context: str, text: str, start: int) -> int:
    """Where `text` stands next to `start`; -1 if nowhere."""
    places: list[int] = []
    found = context.find(text)
    while found >= 0:
        places.append(found)
        found = context.find(text, found + 1)
    return min(places, key=lambda place: abs(place - start), default=-1)


def format_answer(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    """The answer's text and characters. `score` is the margin of the prediction: the answer's score minus that of no
    answer, or the reverse if the prediction is no answer."""
    start, end = (int(offset) for offset in answer[:2])
    text = fields[1][start:end]
    score = float(answer[2] - answer[3])
    none = start == end
    return {
        "prediction": text,
        "answer": text,
        "start": None if none else start,
        "end": None if none else end,
        "score": -score if none else score,
    }


KIND = Kind(
    read=read_questions,
    io=TaskIO(
        inputs={"question": "text", "context": "text"},
        columns={"prediction": "text", "start": "integer", "end": "integer", "score": "number"},
        outputs={"answer": "text", "start": "integer", "end": "integer", "score": "number"},
        parse=parse_texts("question", "context"),
        format=format_answer,
        examples=(
            {"question": "Where was she born?", "context": "Marie Curie was born in Warsaw."},
            {"question": "When?", "context": "Marie Curie was born in Warsaw."},
        ),
    ),
    scoring=lambda *_: Questions(),
)
