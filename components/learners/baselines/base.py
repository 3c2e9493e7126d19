"""The systems of a kind of task, and the constant one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from components.data.tasks.data import Answer, Fields
from components.data.tasks.selection import Candidate, System, Training
from components.learners.words.systems import SYSTEMS


@dataclass(frozen=True)
class Function:
    answers: Callable[[Sequence[Fields]], list[Answer]]


def most_frequent(training: Training) -> list[Candidate]:
    """The constant prediction that is best on the training targets."""
    answer = training.scoring.constant(training.rows.targets)[0]
    return [Candidate.of(Function(lambda rows: [answer] * len(rows)))]


@dataclass(frozen=True)
class Systems:
    """The baselines of one kind of task.

    Attributes:
        usual: name -> system.
        characters: those that are tried first in languages without spaces between words and with `baselines: all`.
        constant: the constant prediction, the lower bound for all other systems.
    """

    usual: Mapping[str, System] = field(default_factory=dict)
    characters: Mapping[str, System] = field(default_factory=dict)
    constant: System = most_frequent


CLASSIFICATION = Systems(*SYSTEMS["classification"])
MULTILABEL = Systems(*SYSTEMS["multilabel"])
REGRESSION = Systems(*SYSTEMS["regression"])
PAIR = Systems(*SYSTEMS["pair"])
SIMILARITY = Systems(*SYSTEMS["similarity"])
