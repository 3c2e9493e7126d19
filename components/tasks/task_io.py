"""How each kind of task is asked and how it answers, in a file's columns and over HTTP.

The parts of an input and what a model says of it are the vectors of `components.scoring`; here they get names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from components.errors import ConfigError, nearest
from components.scoring.multilabel import THRESHOLD
from components.scoring.spans import Tags, read_tags

Fields = tuple[str, ...]
Answer = NDArray[np.float32]
#: What a column holds; `shares`: name -> number, `spans`: objects with start, end (of units, exclusive), type, text.
Value = Literal["text", "texts", "number", "integer", "shares", "spans"]


@dataclass(frozen=True)
class Form:
    """The names of one kind of task.

    Attributes:
        inputs: columns that an input is made of; `texts` may also stand in one text.
        filed: columns that answering adds to a file.
        served: columns that a served model answers with.
        read: values of `inputs` -> the input's parts; None where a part is missing or empty, so that nobody is asked.
            Raises ValueError for a value that is not what it should be.
        tell: (the input's parts, answer, labels) -> a value for every column of `filed` and `served`.
        examples: two inputs, to show.
    """

    inputs: Mapping[str, Value]
    filed: Mapping[str, Value]
    served: Mapping[str, Value]
    read: Callable[[Mapping[str, Any]], Fields | None]
    tell: Callable[[Fields, Answer, Sequence[str]], dict[str, Any]]
    examples: tuple[Mapping[str, Any], Mapping[str, Any]]


def form_of(kind: str) -> Form:
    """The form of a kind of task.

    Raises:
        ConfigError: there is no such kind.
    """
    if kind not in FORMS:
        raise ConfigError(f"kind: unknown task kind {kind!r}{nearest(kind, FORMS)}")
    return FORMS[kind]


# -- reading ---------------------------------------------------------------------------------------------------------


def _text(name: str, value: Any) -> str:
    """A text; empty where there is none."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name!r} is {type(value).__name__}, expected text")
    return value


def _all_texts(*names: str) -> Callable[[Mapping[str, Any]], Fields | None]:
    def read(row: Mapping[str, Any]) -> Fields | None:
        parts = tuple(_text(name, row[name]) for name in names)
        return parts if all(part.strip() for part in parts) else None

    return read


def _words(row: Mapping[str, Any]) -> Fields | None:
    """A list, or a text with white space between the words."""
    value = row["words"]
    if isinstance(value, str):
        return tuple(value.split()) or None
    return _list("words", value) or None


def _choices(row: Mapping[str, Any]) -> Fields | None:
    """A list, or the same as JSON where a format knows only texts."""
    prompt, value = _text("text", row["text"]), row["choices"]
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"'choices' is not a list in JSON ({error})") from error
    choices = _list("choices", value or None)
    return (prompt, *choices) if len(choices) > 1 and all(choice.strip() for choice in choices) else None


def _list(name: str, value: Any) -> Fields:
    if value is None:
        return ()
    # Parquet and MLflow give arrays for lists.
    found = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(found, list) or not all(isinstance(part, str) for part in found):
        raise ValueError(f"{name!r} is {type(value).__name__}, expected a list of texts")
    return tuple(found)


# -- telling ---------------------------------------------------------------------------------------------------------


def _label(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    best = int(answer.argmax())
    return {
        "prediction": labels[best],
        "label": labels[best],
        "confidence": float(answer[best]),
        "probabilities": _shares(answer, labels),
    }


def _labels(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    given = [labels[int(place)] for place in np.flatnonzero(answer >= THRESHOLD)]
    return {"prediction": ",".join(given), "labels": given, "probabilities": _shares(answer, labels)}


def _shares(answer: Answer, labels: Sequence[str]) -> dict[str, float]:
    return {label: float(value) for label, value in zip(labels, answer, strict=True)}


def _value(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    return {"prediction": float(answer[0]), "value": float(answer[0])}


def _tags(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    numbers = answer.astype(np.int64)
    tags: Tags = read_tags(labels)
    found = tags.spans(numbers, np.asarray([len(numbers)])) if tags.types else None
    spans = [
        {
            "start": int(start),
            "end": int(end),
            "type": tags.types[kind],
            "text": " ".join(fields[start:end]),
        }
        for start, end, kind in (zip(found.starts, found.ends, found.types, strict=True) if found else ())
    ]
    names = [labels[number] for number in numbers]
    return {"prediction": " ".join(names), "tags": names, "spans": spans}


def _answer(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    """`score`: of the answer, less that of no answer; where there is none, what speaks for none."""
    start, end = (int(place) for place in answer[:2])
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


def _choice(fields: Fields, answer: Answer, labels: Sequence[str]) -> dict[str, Any]:
    best = int(answer.argmax())
    return {
        "prediction": fields[1 + best],
        "choice": fields[1 + best],
        "place": best,
        "confidence": float(answer[best]),
    }


_CLASSIFIED: dict[str, Any] = {
    "filed": {"prediction": "text", "confidence": "number"},
    "served": {"label": "text", "confidence": "number", "probabilities": "shares"},
    "tell": _label,
}
_PAIR = {"first": "A man plays a guitar.", "second": "Someone makes music."}
_OTHER_PAIR = {"first": "A man plays a guitar.", "second": "Nobody is here."}
_TEXTS = ({"text": "The name of the bucket."}, {"text": "Whether versioning is on."})

FORMS: dict[str, Form] = {
    "classification": Form(inputs={"text": "text"}, read=_all_texts("text"), examples=_TEXTS, **_CLASSIFIED),
    "pair": Form(
        inputs={"first": "text", "second": "text"},
        read=_all_texts("first", "second"),
        examples=(_PAIR, _OTHER_PAIR),
        **_CLASSIFIED,
    ),
    "multilabel": Form(
        inputs={"text": "text"},
        filed={"prediction": "text"},
        served={"labels": "texts", "probabilities": "shares"},
        read=_all_texts("text"),
        tell=_labels,
        examples=_TEXTS,
    ),
    "similarity": Form(
        inputs={"first": "text", "second": "text"},
        filed={"prediction": "number"},
        served={"value": "number"},
        read=_all_texts("first", "second"),
        tell=_value,
        examples=(_PAIR, _OTHER_PAIR),
    ),
    "tagging": Form(
        inputs={"words": "texts"},
        filed={"prediction": "text", "spans": "spans"},
        served={"tags": "texts", "spans": "spans"},
        read=_words,
        tell=_tags,
        examples=({"words": ["Marie", "Curie", "went", "to", "Paris"]}, {"words": ["It", "rains"]}),
    ),
    "questions": Form(
        inputs={"question": "text", "context": "text"},
        filed={"prediction": "text", "start": "integer", "end": "integer", "score": "number"},
        served={"answer": "text", "start": "integer", "end": "integer", "score": "number"},
        read=_all_texts("question", "context"),
        tell=_answer,
        examples=(
            {"question": "Where was she born?", "context": "Marie Curie was born in Warsaw."},
            {"question": "When?", "context": "Marie Curie was born in Warsaw."},
        ),
    ),
    "choice": Form(
        inputs={"text": "text", "choices": "texts"},
        filed={"prediction": "text", "confidence": "number"},
        served={"choice": "text", "place": "integer", "confidence": "number"},
        read=_choices,
        tell=_choice,
        examples=(
            {"text": "It rains, so he takes", "choices": ["an umbrella", "a nap"]},
            {"text": "She is tired, so she takes", "choices": ["an umbrella", "a nap"]},
        ),
    ),
}
