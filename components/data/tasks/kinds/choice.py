"""Multiple choice: a text and several continuations or answers, one of them correct."""

import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.core.errors import DataError
from components.data.scoring.base import (
    Fields,
    Floats,
    Inputs,
    Scoring,
    Vector,
    Vectors,
    frequencies,
    matrix_of,
    numbers,
)
from components.data.tasks.data import Answer, Examples
from components.data.tasks.kinds import Kind
from components.data.tasks.reading.records import Origin, Record, filled, label_of
from components.data.tasks.reading.splits import Rows
from components.data.tasks.task_io import TaskIO, WrongValueError, text, texts
from components.settings.tasks import TaskSource


def read_choices(name: str, source: TaskSource) -> Examples:
    """Fields are the text and its choices; a target is the index of the correct choice.

    Raises:
        DataError: a file is missing or damaged; a text or choice is empty, a row has fewer than two choices, or the
            label does not identify one of them (file and line); or as `Rows.examples`.
    """
    columns = source.choices if isinstance(source.choices, list) else [source.choices]
    rows = Rows(name, source)
    for split, record in rows.records([source.text, *columns, source.label]):
        prompt = filled(record.values[0], "the text", source.text, record.origin)
        choices = _choices(record, source)
        label = label_of(record.values[-1], source.label, record.origin)
        rows.add(split, (prompt, *choices), _right(label, choices, source, record.origin), record.origin)
    return rows.examples(labels=[])


def _choices(record: Record, source: TaskSource) -> list[str]:
    values: list[Any] = list(record.values[1:-1])
    names = source.choices if isinstance(source.choices, list) else [source.choices]
    if isinstance(source.choices, str):
        if not isinstance(values[0], list):
            raise DataError(
                f"{names[0]!r} holds no list of choices; set choices to a list of columns", where=record.origin
            )
        values, names = values[0], names * len(values[0])
    if len(values) < 2:
        raise DataError(f"{len(values)} choice(s), expected two or more", where=record.origin)
    return [filled(value, "a choice", name, record.origin) for value, name in zip(values, names, strict=True)]


def _right(label: str, choices: list[str], source: TaskSource, origin: Origin) -> int:
    if source.answer == "text":
        result = [index for index, choice in enumerate(choices) if choice.strip() == label]
        number = result[0] if len(result) == 1 else -1
    elif source.answer == "letter":
        number = string.ascii_uppercase.find(label.upper()) if len(label) == 1 else -1
    else:
        number = int(label) - (source.answer == "from_one") if label.isdecimal() else -1
    if not 0 <= number < len(choices):
        raise DataError(
            f"label {label!r} does not identify one of the {len(choices)} choices "
            f"(answer: {source.answer}); correct it, or set answer to from_zero, from_one, letter or text",
            where=origin,
        )
    return number


def parse(row: Mapping[str, Any]) -> Fields | None:
    """The prompt and its choices: a list, or a JSON list in formats whose cells are text."""
    prompt, value = text("text", row["text"]), row["choices"]
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise WrongValueError("choices", f"is not a list in JSON ({error})") from error
    choices = texts("choices", value or None)
    return (prompt, *choices) if len(choices) > 1 and all(choice.strip() for choice in choices) else None


def format_choice(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    best = int(answer.argmax())
    return {
        "prediction": fields[1 + best],
        "choice": fields[1 + best],
        "place": best,
        "confidence": float(answer[best]),
    }


@dataclass(frozen=True)
class Choice(Scoring):
    """One of the row's choices. The index of a choice carries no meaning, so there are neither classes nor a confusion
    matrix. K = 3 B sums: rows, confidence and correct rows of each calibration bin."""

    bins: int = 15

    names = ("accuracy", "ece")
    constant_name = "most frequent position"

    def in_words(self, fields: Fields, target: Vector) -> str:
        return fields[1 + int(target[0])]

    @property
    def width(self) -> int:
        return 3 * self.bins

    def statistics(self, fields: Inputs, targets: Vectors, answers: Vectors) -> sparse.csr_array:
        right = numbers(targets) == [answer.argmax() for answer in answers]
        confidence = np.fromiter((answer.max() for answer in answers), np.float64, len(answers))
        return matrix_of(*self.binned(confidence, right.astype(np.float64)), self.width)

    def scores(self, sums: Floats) -> dict[str, Floats]:
        rows, _, correct = self.bins_of(sums)
        return {"accuracy": correct.sum(-1) / rows.sum(-1), "ece": self.calibration_error(sums)}

    def constant(self, targets: Vectors) -> list[NDArray[np.float32]]:
        """The relative frequencies of the positions of the correct choice."""
        return frequencies(targets)


KIND = Kind(
    read=read_choices,
    io=TaskIO(
        inputs={"text": "text", "choices": "texts"},
        columns={"prediction": "text", "confidence": "number"},
        outputs={"choice": "text", "place": "integer", "confidence": "number"},
        parse=parse,
        format=format_choice,
        examples=(
            {"text": "It rains, so he takes", "choices": ["an umbrella", "a nap"]},
            {"text": "She is tired, so she takes", "choices": ["an umbrella", "a nap"]},
        ),
    ),
    scoring=lambda _: Choice(),
    pipeline=None,
)
