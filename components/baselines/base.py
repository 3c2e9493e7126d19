"""The systems of a kind of task, and the constant one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from components.tasks.data import Answer, Fields
from components.tasks.selection import Candidate, System, Training


@dataclass(frozen=True)
class Constant:
    """The same answer to every row."""

    answer: Answer

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """The answer, N times."""
        return [self.answer] * len(rows)


def most_frequent(training: Training) -> list[Candidate]:
    """The constant prediction that is best on the training targets."""
    return [Candidate.of(Constant(training.scoring.constant(training.rows.targets)[0]))]


@dataclass(frozen=True)
class Systems:
    """The baselines of one kind of task.

    Attributes:
        usual: name -> system.
        characters: further systems, slower, for languages without spaces between words and for `baselines: all`.
        constant: the constant prediction, the lower bound for all other systems.
    """

    usual: Mapping[str, System] = field(default_factory=dict)
    characters: Mapping[str, System] = field(default_factory=dict)
    constant: System = most_frequent
