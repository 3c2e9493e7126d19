"""Extractive question answering: the answer is a span of a context, or there is none.

Metrics are as SQuAD defines them (Rajpurkar et al. 2016, 2018).

Fields are (question, context). Targets are [start, end, start, end, ...]: character offsets in the context, end
exclusive, of every reference answer; empty if the question is unanswerable. Answers begin with [start, end]; start ==
end means no answer.

Answers are normalised: lower case, no punctuation, no articles, single spaces. Exact match and F1 of the bags of words
are maxima over the references. If the question is unanswerable or no answer is predicted, both metrics are 1 if
both are the case, else 0 (SQuAD 2.0).

Thai and Chinese are written without spaces between words, so a word by this definition is a phrase or a sentence. The
two character metrics remove white space and compare characters (Cui et al. 2019, CMRC 2018); they are computed for
every language.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from unicodedata import category

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.core.errors import DataError
from components.data.formats.jsontables import member
from components.data.formats.tables import MOST_BAD, as_text
from components.data.formats.textkey import text_key
from components.data.scoring.base import Classes, Fields, Floats, Inputs, Judged, Scoring, Vector, Vectors, ratio
from components.data.tasks.data import Answer, Examples
from components.data.tasks.kinds import Kind
from components.data.tasks.reading.records import Origin, filled
from components.data.tasks.reading.splits import Rows
from components.data.tasks.task_io import texts_io
from components.settings.tasks import TaskSource


def read_questions(name: str, source: TaskSource) -> Examples:
    """Fields are question and context; a target holds the character offsets [start, end, ...] of every reference answer
    in the context (end exclusive), empty for an unanswerable question.

    `wrong_spans` controls answers whose text is not at the given offset; few of them are moved in any case. Rows with
    the same context are either all in train or all in dev; duplicates are rows with the same question and context.

    Raises:
        DataError: a file is missing or has another layout; a question or context is empty; `wrong_spans` is `refuse`
            and the answers of more than `MOST_BAD` of the questions do not match their contexts (id of the first, and
            their number); no question of train has an answer; or as `Rows.examples`.
    """
    rows = Rows(name, source)
    wrong: list[str] = []
    asked, counts = 0, rows.counts
    counts.update({"wrong_spans": 0, "unanswerable": 0})
    columns = [source.question, source.context, source.answers]
    for split, record in rows.records(columns, texts=2):
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
        rows.add(split, (question, context), spans, origin, "", text_key(context))
    if len(wrong) > MOST_BAD * asked and source.wrong_spans == "refuse":
        raise DataError(
            f"{wrong[0]}; {counts['wrong_spans']} answer(s) of {len(wrong)} question(s) do not match their context: "
            f"correct them, or set data.tasks.{name}.wrong_spans to move or drop"
        )
    for split in ("train", "dev", "test"):
        if source.files(split) and not rows.get(split):
            raise DataError(f"{source.path}/{' + '.join(source.files(split))}: holds no question that can be used")
    if not any(row.target for row in rows["train"]):
        raise DataError(f"{rows.files_of_train}: no question has an answer")
    return rows.examples(labels=[], target=lambda row: [offset for span in row.target for offset in span])


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
            read = [
                at for at, character in enumerate(text) if not character.isspace() and category(character)[0] != "C"
            ]
            spans.append((start + read[0], start + read[-1] + 1) if read else (start, start + len(text)))
    return list(dict.fromkeys(spans)), wrong


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


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
#: Classes of questions.
PARTS = ("answerable", "unanswerable")


@dataclass(frozen=True)
class Questions(Scoring):
    """K = 10 sums: the four metrics and the number of rows, of answerable and of unanswerable questions."""

    names = ("f1", "exact_match", "f1_characters", "exact_match_characters")
    width, averages = 2 * (len(names) + 1), False
    score_name, outcomes = "margin of the answer", ("no answer", "answer")
    constant_name = "no answer"

    def in_words(self, fields: Fields, target: Vector) -> str:
        return " / ".join(sorted(_texts(fields, target))) or "no answer"

    def judged(self, fields: Fields, target: Vector, answer: Vector) -> Judged:
        predicted = fields[1][int(answer[0]) : int(answer[1])]
        if predicted in (_texts(fields, target) or {""}):
            return None
        # The margin of the span over no answer, as a probability.
        margin = float(np.clip(answer[2] - answer[3], -30, 30))
        return self.compared(fields, target, answer[:2], 1 / (1 + np.exp(-margin if predicted else margin)))

    def described(self, answer: Vector) -> tuple[int, float]:
        # The scores of an answer and of no answer.
        return int(answer[0] != answer[1]), float(np.clip(answer[2] - answer[3], -1e3, 1e3))

    def named(self, target: Vector) -> tuple[str, ...]:
        return (PARTS[not len(target)],)

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        metrics = np.zeros((len(targets), self.width))
        half = self.width // 2
        for row, (parts, target, answer) in enumerate(zip(fields, targets, answers, strict=True)):
            references = _texts(parts, target)
            first = 0 if references else half
            metrics[row, first : first + half] = (
                *answer_scores(parts[1][int(answer[0]) : int(answer[1])], references),
                1,
            )
        return sparse.csr_array(metrics)

    def scores(self, sums: Floats) -> dict[str, Floats]:
        both = sums[..., : self.width // 2] + sums[..., self.width // 2 :]
        return {name: both[..., index] / both[..., -1] for index, name in enumerate(self.names)}

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        """The prediction that no question has an answer."""
        return [np.zeros(4, dtype=np.float32)] * len(targets)

    def classes(self, sums: Floats) -> Classes:
        """The metrics of the two classes of questions, if they occur."""
        metrics: Classes = {}
        for part, values in zip(PARTS, np.split(sums, 2), strict=True):
            if values[-1]:
                means = {name: float(values[index] / values[-1]) for index, name in enumerate(self.names)}
                metrics[part] = {**means, "rows": float(values[-1])}
        return metrics

    def class_f1(self, sums: Floats) -> dict[str, Floats]:
        """F1 of the two classes of questions."""
        halves = np.split(sums, 2, axis=-1)
        return {part: ratio(half[..., 0], half[..., -1]) for part, half in zip(PARTS, halves, strict=True)}


def _texts(fields: Fields, target: Vector) -> set[str]:
    """The answers of a target."""
    return {fields[1][start:end] for start, end in target.astype(np.int64).reshape(-1, 2)}


def answer_scores(answer: str, references: Iterable[str]) -> tuple[float, float, float, float]:
    """F1, exact match, and both on characters: maxima over the references that are not empty after normalisation.

    An empty answer is no answer; without references the question is unanswerable.
    """
    scores = [_against(answer, reference) for reference in filter(normalised, references)] or [_against(answer, "")]
    f1, exact, f1_characters, exact_characters = (max(values) for values in zip(*scores, strict=True))
    return f1, exact, f1_characters, exact_characters


@lru_cache(maxsize=65536)
def normalised(answer: str) -> str:
    """Normalised text: the steps of SQuAD's evaluation script, in the same order."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def _against(answer: str, reference: str) -> tuple[float, float, float, float]:
    ours, theirs = normalised(answer), normalised(reference)
    our_characters, their_characters = ours.replace(" ", ""), theirs.replace(" ", "")
    return (
        _overlap(ours.split(), theirs.split()),
        float(ours == theirs),
        _overlap(our_characters, their_characters),
        float(our_characters == their_characters),
    )


def _overlap(ours: Sequence[str], theirs: Sequence[str]) -> float:
    """F1 of two bags; if one is empty, 1 if both are, else 0."""
    if not ours or not theirs:
        return float(not ours and not theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs))


EXAMPLES = (
    {"question": "Where was she born?", "context": "Marie Curie was born in Warsaw."},
    {"question": "When?", "context": "Marie Curie was born in Warsaw."},
)
KIND = Kind(
    read=read_questions,
    io=texts_io(
        EXAMPLES,
        {"prediction": "text", "start": "integer", "end": "integer", "score": "number"},
        {"answer": "text", "start": "integer", "end": "integer", "score": "number"},
        format_answer,
    ),
    scoring=lambda _: Questions(),
    pipeline="question-answering",
)
