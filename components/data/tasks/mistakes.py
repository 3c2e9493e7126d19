"""The wrong answers of a model, the most certain ones first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.data.scoring.multilabel import THRESHOLD
from components.data.tasks.data import Answer, Fields, Split, Target

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
    judge = JUDGES.get(kind)
    if judge is None:
        return []
    result = []
    for row, (fields, target, answer) in enumerate(zip(split.fields, split.targets, answers, strict=True)):
        judged = judge(fields, target, answer, labels)
        if judged is not None:
            result.append(Mistake(row, fields, split.slices[row], *judged))
    return sorted(result, key=lambda mistake: -mistake.size)


def _label(fields: Fields, target: Target, answer: Answer, labels: Sequence[str]) -> Judged:
    true, best = int(target[0]), int(answer.argmax())
    return None if true in (-1, best) else (labels[true], labels[best], float(answer[best]))


def _choice(fields: Fields, target: Target, answer: Answer, labels: Sequence[str]) -> Judged:
    return _label(fields, target, answer, fields[1:])


def _labels(fields: Fields, target: Target, answer: Answer, labels: Sequence[str]) -> Judged:
    given = np.zeros(len(labels), dtype=bool)
    given[target.astype(np.int64)] = True
    wrong = given != (answer >= THRESHOLD)
    if not wrong.any():
        return None
    true, predicted = (", ".join(np.asarray(labels)[chosen]) or NO_LABEL for chosen in (given, answer >= THRESHOLD))
    return true, predicted, float(np.abs(answer - given)[wrong].max())


def _number(fields: Fields, target: Target, answer: Answer, labels: Sequence[str]) -> Judged:
    error = abs(float(answer[0]) - float(target[0]))
    return (f"{target[0]:.4g}", f"{answer[0]:.4g}", error) if error > 0 else None


def _tags(fields: Fields, target: Target, answer: Answer, labels: Sequence[str]) -> Judged:
    wrong = np.flatnonzero(np.asarray(target, dtype=np.int64) != np.asarray(answer, dtype=np.int64))
    if not len(wrong):
        return None
    true, predicted = (
        ", ".join(f"{fields[word]}: {labels[int(tags[word])]}" for word in wrong) for tags in (target, answer)
    )
    return true, predicted, len(wrong) / len(target)


def _span(fields: Fields, target: Target, answer: Answer, labels: Sequence[str]) -> Judged:
    context = fields[1]
    references = {context[int(start) : int(end)] for start, end in np.asarray(target).reshape(-1, 2)}
    predicted = context[int(answer[0]) : int(answer[1])]
    if predicted in references or (not predicted and not references):
        return None
    # The margin of the span over no answer, as a probability.
    margin = float(np.clip(answer[2] - answer[3], -30, 30))
    confidence = 1 / (1 + np.exp(-margin if predicted else margin))
    return " / ".join(sorted(references)) or "no answer", predicted or "no answer", float(confidence)


JUDGES: dict[str, Callable[[Fields, Target, Answer, Sequence[str]], Judged]] = {
    "classification": _label,
    "pair": _label,
    "choice": _choice,
    "multilabel": _labels,
    "similarity": _number,
    "regression": _number,
    "tagging": _tags,
    "questions": _span,
}


def has_confusion(kind: str) -> bool:
    """Whether each row of the kind has one label."""
    return JUDGES.get(kind) is _label


def target_in_words(kind: str, fields: Fields, target: Target, labels: Sequence[str]) -> str:
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
            named = [(word, labels[int(tag)]) for word, tag in zip(fields, target, strict=True)]
            return ", ".join(f"{word}: {tag}" for word, tag in named if tag != "O") or NO_LABEL
        case "questions":
            spans = np.asarray(target).reshape(-1, 2)
            return " / ".join(sorted({fields[1][int(start) : int(end)] for start, end in spans})) or "no answer"
    return ""
