"""The wrong answers of a model, the most certain ones first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.data.scoring.multilabel import THRESHOLD
from components.data.tasks.data import Answer, Fields, Split

NO_LABEL = "no label"


@dataclass(frozen=True)
class Mistake:
    """A row with a wrong answer. `size`: confidence in the wrong answer; error of a number; share of wrong tags of a
    sentence."""

    row: int
    fields: Fields
    slice: str | None
    true: str
    predicted: str
    size: float

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "fields": list(self.fields)}


#: (true, predicted, size) of a wrong answer; None for a right one.
Judged = tuple[str, str, float] | None


def mistakes(split: Split, answers: Sequence[Answer], *, kind: str, labels: Sequence[str]) -> list[Mistake]:
    """The wrong answers in descending order of their size, rows of equal size in their order; empty for a kind whose
    answers cannot be judged row by row.
    """
    result = []
    for row, (fields, target, answer) in enumerate(zip(split.fields, split.targets, answers, strict=True)):
        judged = _judged(kind, fields, np.asarray(target), np.asarray(answer), labels)
        if judged is not None:
            result.append(Mistake(row, fields, split.slices[row], *judged))
    return sorted(result, key=lambda mistake: -mistake.size)


def _judged(kind: str, fields: Fields, target: NDArray[Any], answer: Answer, labels: Sequence[str]) -> Judged:
    given: NDArray[Any]
    match kind:
        case "classification" | "pair" | "choice":
            best = int(answer.argmax())
            wrong, given, size = target[0] not in (-1, best), np.array([best]), answer[best]
        case "multilabel":
            has, chosen = np.isin(np.arange(len(labels)), target), answer >= THRESHOLD
            wrong, size = bool((has != chosen).any()), np.abs(answer - has)[has != chosen].max(initial=0)
            target, given = np.flatnonzero(has), np.flatnonzero(chosen)
        case "similarity" | "regression":
            given, size = answer, abs(float(answer[0]) - float(target[0]))
            wrong = size > 0
        case "tagging":
            at = np.flatnonzero(target.astype(np.int64) != answer.astype(np.int64))
            true, predicted = (", ".join(_tags(fields, tags, labels, at)) for tags in (target, answer))
            return (true, predicted, len(at) / len(target)) if len(at) else None
        case "questions":
            given, references = answer[:2], {fields[1][start:end] for start, end in _spans(target)}
            predicted = fields[1][int(answer[0]) : int(answer[1])]
            wrong = predicted not in (references or {""})
            # The margin of the span over no answer, as a probability.
            margin = float(np.clip(answer[2] - answer[3], -30, 30))
            size = 1 / (1 + np.exp(-margin if predicted else margin))
        case _:
            return None
    true, said = (target_in_words(kind, fields, values, labels) for values in (target, given))
    return (true, said, float(size)) if wrong else None


def _tags(fields: Fields, tags: NDArray[Any], labels: Sequence[str], at: Iterable[int]) -> list[str]:
    return [f"{fields[word]}: {labels[int(tags[word])]}" for word in at]


def _spans(target: NDArray[Any]) -> list[tuple[int, int]]:
    return [(int(start), int(end)) for start, end in np.asarray(target).reshape(-1, 2)]


def has_confusion(kind: str) -> bool:
    """Whether each row of the kind has one label."""
    return kind in ("classification", "pair")


def target_in_words(kind: str, fields: Fields, target: NDArray[Any], labels: Sequence[str]) -> str:
    """A target as text; empty for a kind that is not known here."""
    match kind:
        case "classification" | "pair":
            return labels[int(target[0])] if target[0] >= 0 else NO_LABEL
        case "choice":
            return fields[1 + int(target[0])]
        case "multilabel":
            return ", ".join(labels[int(index)] for index in target) or NO_LABEL
        case "similarity" | "regression":
            return f"{target[0]:.4g}"
        case "tagging":
            at = [word for word, tag in enumerate(target) if labels[int(tag)] != "O"]
            return ", ".join(_tags(fields, target, labels, at)) or NO_LABEL
        case "questions":
            return " / ".join(sorted({fields[1][start:end] for start, end in _spans(target)})) or "no answer"
    return ""
