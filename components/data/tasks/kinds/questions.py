"""Extractive question answering: the answer is a span of a context, or there is none."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from unicodedata import category

from components.core.errors import DataError
from components.data.formats.jsontables import member
from components.data.formats.tables import MOST_BAD, as_text
from components.data.formats.textkey import text_key
from components.data.scoring.questions import Questions
from components.data.tasks.data import Answer, Examples, Fields
from components.data.tasks.kinds import Kind
from components.data.tasks.reading.records import Origin, all_records, filled
from components.data.tasks.reading.splits import Row, Rows, examples_of, train_of
from components.data.tasks.task_io import TaskIO, parse_texts
from components.settings.tasks import TaskSource


def read_questions(name: str, source: TaskSource) -> Examples:
    """Fields are question and context; a target holds the character offsets [start, end, ...] of every reference answer
    in the context (end exclusive), empty for an unanswerable question.

    `wrong_spans` controls answers whose text is not at the given offset; few of them are moved in any case. Rows with
    the same context are either all in train or all in dev; duplicates are rows with the same question and context.

    Raises:
        DataError: a file is missing or has another layout; a question or context is empty; `wrong_spans` is `refuse`
            and the answers of more than `MOST_BAD` of the questions do not match their contexts (id of the first, and
            their number); no question of train has an answer; or as `examples_of`.
    """
    rows: Rows = {}
    wrong: list[str] = []
    asked = 0
    counts = Counter({"wrong_spans": 0, "unanswerable": 0})
    columns = [source.question, source.context, source.answers]
    for split, record in all_records(source, columns, counts, texts=2, nested=True):
        origin = record.origin
        for value, what, column in zip(record.values, ("question", "context"), columns, strict=False):
            # Invisible characters are no part of an answer.
            filled(value.replace("\0", "") if isinstance(value, str) else value, f"the {what}", column, origin)
        asked += 1
        where = f"{origin}: id {origin.id or origin}"
        answers = _answers(record.values[2], source.answers, origin, where)
        question, context = (as_text(value, origin) or "" for value in record.values[:2])
        spans, bad = _spans(answers, context, move=source.wrong_spans != "drop")
        if bad:
            wrong.append(f"{where}: {bad[0]}")
            counts["wrong_spans"] += len(bad)
        if bad and (source.wrong_spans == "drop" or not spans):
            continue
        counts["unanswerable"] += not spans
        rows.setdefault(split, []).append(Row((question, context), spans, origin, joined=text_key(context)))
    if len(wrong) > MOST_BAD * asked and source.wrong_spans == "refuse":
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
        counts=counts,
    )


def _answers(value: Any, column: str, origin: Origin, where: str) -> list[tuple[int, str]]:
    """(first character, text) of each distinct answer, in order, of a list of objects (SQuAD) or of parallel lists of
    texts and starts; null: none.

    Raises:
        DataError: the value is something else, or an answer has no text or answer_start.
    """
    if value is None:
        return []
    if isinstance(value, dict) and isinstance(texts := value.get("text"), list):
        starts = value.get("answer_start")
        if isinstance(starts, list) and len(starts) == len(texts):
            value = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if not isinstance(value, list):
        raise DataError(
            f"{column!r} holds no answers; expected a list of {{text, answer_start}}, or two lists", where=origin
        )
    where = f"{where}, an answer"
    pairs = ((member(entry, "answer_start", int, where), member(entry, "text", str, where)) for entry in value)
    return list(dict.fromkeys(pairs))


def _spans(answers: Iterable[tuple[int, str]], context: str, *, move: bool) -> tuple[list[tuple[int, int]], list[str]]:
    """(start, end) of the answers, moved with `move`, and messages for answers not at their given offset."""
    spans: list[tuple[int, int]] = []
    wrong: list[str] = []
    for start, text in answers:
        if not text.strip():
            wrong.append("an answer is empty; mark the question is_impossible, or remove the answer")
            continue
        if start < 0 or context[start : start + len(text)] != text:
            at = context[max(start, 0) : max(start, 0) + len(text)]
            wrong.append(f"answer {text[:60]!r} is not at character {start}, found {at[:60]!r}")
            start = _nearest(context, text, start) if move else -1
        if start >= 0:
            # White space and invisible characters around an answer belong to no word of the context.
            read = [index for index, character in enumerate(text) if not _blank(character)]
            spans.append((start + read[0], start + read[-1] + 1) if read else (start, start + len(text)))
    return list(dict.fromkeys(spans)), wrong


def _blank(character: str) -> bool:
    # White space, control and format characters (U+200B), for which a tokenizer may have no piece.
    return character.isspace() or category(character)[0] == "C"


def _nearest(context: str, text: str, start: int) -> int:
    """The occurrence of `text` in the context that is nearest to `start`; -1 if there is none."""
    offsets = (match.start() for match in re.finditer(f"(?={re.escape(text)})", context))
    return min(offsets, key=lambda offset: abs(offset - start), default=-1)


def format_answer(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    """The answer's text and characters. `score` is the margin of the prediction: the answer's score minus the score of
    no answer, or the reverse if the prediction is no answer."""
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
    scoring=lambda _: Questions(),
    pipeline="question-answering",
)
