"""The wrong answers of a model, the most certain ones first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.data.scoring import Scoring
from components.data.tasks.data import Answer, Fields, Split


@dataclass(frozen=True)
class Mistake:
    """A row with a wrong answer. `size`: as of `Scoring.judged`."""

    row: int
    fields: Fields
    slice: str | None
    true: str
    predicted: str
    size: float

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "fields": list(self.fields)}


def mistakes(split: Split, answers: Sequence[Answer], scoring: Scoring) -> list[Mistake]:
    """The wrong answers in descending order of their size, rows of equal size in their order."""
    rows = zip(split.fields, split.targets, answers, strict=True)
    judged = [scoring.judged(fields, np.asarray(target), np.asarray(answer)) for fields, target, answer in rows]
    wrong = [Mistake(row, split.fields[row], split.slices[row], *each) for row, each in enumerate(judged) if each]
    return sorted(wrong, key=lambda mistake: -mistake.size)
