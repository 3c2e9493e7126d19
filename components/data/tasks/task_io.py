"""Input and output of a task: names of the columns in files and of the fields over HTTP.

Inputs and answers are positional (`components.data.tasks.data`); this module maps them to named columns and fields.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from components.data.tasks.data import Answer, Fields

#: Type of a column. `shares`: label -> probability; `spans`: objects with start and end (word indices, end exclusive),
#: type and text.
Value = Literal["text", "texts", "number", "integer", "boolean", "shares", "spans"]


@dataclass(frozen=True)
class TaskIO:
    """Column names and formats of one kind of task.

    Attributes:
        inputs: columns of one input; `texts` may also be one text.
        columns: columns that prediction adds to a file.
        parse: values of `inputs` -> the input's parts; None if a part is missing or empty: the row is skipped.
            Raises WrongValueError for a value of the wrong type.
        format: (the input's parts, answer, labels) -> a value for every column of `columns` and `outputs`.
    """

    inputs: Mapping[str, Value]
    columns: Mapping[str, Value]
    outputs: Mapping[str, Value]
    parse: Callable[[Mapping[str, Any]], Fields | None]
    format: Callable[[Fields, Answer, Sequence[str]], dict[str, Any]]
    examples: tuple[Mapping[str, Any], Mapping[str, Any]]

    @property
    def separator(self) -> str:
        """What stands between the parts of an input that is shown: a space between the words of a sentence."""
        return " " if [*self.inputs.values()] == ["texts"] else "\n"


#: Example inputs of kinds that read one text, and of kinds that read two.
TEXT_EXAMPLES = ({"text": "The name of the bucket."}, {"text": "Whether versioning is on."})
PAIR_EXAMPLES = (
    {"first": "A man plays a guitar.", "second": "Someone makes music."},
    {"first": "A man plays a guitar.", "second": "Nobody is here."},
)


class WrongValueError(ValueError):
    """A value of an input, `name`, is not as its task reads it; `what` is wrong, in words."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name!r} {what}")
        self.name, self.what = name, what


def text(name: str, value: Any) -> str:
    """A text; empty if the value is null.

    Raises:
        WrongValueError: the value is neither text nor null.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WrongValueError(name, f"is {type(value).__name__}, expected text")
    return value


def texts(name: str, value: Any) -> Fields:
    """A list of texts; empty if the value is null.

    Raises:
        WrongValueError: the value is neither a list of texts nor null.
    """
    if value is None:
        return ()
    # Parquet and MLflow represent lists as arrays.
    result = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(result, list) or not all(isinstance(part, str) for part in result):
        raise WrongValueError(name, f"is {type(value).__name__}, expected a list of texts")
    return tuple(result)


def parse_texts(*names: str) -> Callable[[Mapping[str, Any]], Fields | None]:
    """`TaskIO.parse` of a kind whose input is one text per column; all of them must be filled."""

    def parse(row: Mapping[str, Any]) -> Fields | None:
        parts = tuple(text(name, row[name]) for name in names)
        return parts if all(part.strip() for part in parts) else None

    return parse


def probabilities(answer: Answer, labels: Sequence[str]) -> dict[str, float]:
    return {label: float(value) for label, value in zip(labels, answer, strict=True)}


def texts_io(
    examples: tuple[Mapping[str, Any], Mapping[str, Any]],
    columns: Mapping[str, Value],
    outputs: Mapping[str, Value],
    format: Callable[[Fields, Answer, Sequence[str]], dict[str, Any]],
) -> TaskIO:
    """The `TaskIO` of a kind whose inputs, those of the examples, are texts."""
    names = [*examples[0]]
    return TaskIO(dict.fromkeys(names, "text"), columns, outputs, parse_texts(*names), format, examples)
