"""The systems of a kind of task, and the constant one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from components.data.tasks.data import Answer, Fields
from components.learners.base import Candidate, Learner, Rows


@dataclass(frozen=True)
class Function:
    answers: Callable[[Sequence[Fields]], list[Answer]]


def most_frequent(training: Rows) -> list[Candidate]:
    """The constant prediction that is best on the training targets."""
    answer = training.scoring.constant(training.labelled.targets)[0]
    return [Candidate.of(Function(lambda rows: [answer] * len(rows)))]


@dataclass(frozen=True)
class Systems:
    """The baselines of one kind of task.

    Attributes:
        usual: name -> system, in the order in which they are tried.
        constant: the constant prediction, the lower bound for all other systems.
    """

    usual: Mapping[str, Learner]
    constant: Learner = most_frequent
