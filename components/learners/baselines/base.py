"""The constant system, the lower bound for all other systems."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from components.data.tasks.data import Answer, Fields
from components.learners.base import Candidate, Rows


@dataclass(frozen=True)
class Function:
    """A fitted system that is not stored."""

    answers: Callable[[Sequence[Fields]], list[Answer]]


def most_frequent(training: Rows) -> list[Candidate]:
    """The constant prediction that is best on the training targets."""
    answer = training.scoring.constant(training.labelled.targets)[0]
    return [Candidate.of(Function(lambda rows: [answer] * len(rows)))]
