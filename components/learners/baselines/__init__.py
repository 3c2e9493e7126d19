"""Systems without a language model: one table entry per kind of task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from components.core.tables import LazyTable
from components.data.tasks.data import Answer, Fields
from components.learners.base import Candidate, Learner, Rows
from components.learners.words.systems import SYSTEMS, used
from components.settings.section import MOST_FREQUENT


@dataclass(frozen=True)
class Function:
    """A fitted system that is not stored."""

    answers: Callable[[Sequence[Fields]], list[Answer]]


def most_frequent(training: Rows) -> list[Candidate]:
    """The constant prediction that is best on the training targets, the lower bound for all other systems."""
    answer = training.scoring.constant(training.labelled.targets)[0]
    return [Candidate.of(Function(lambda rows: [answer] * len(rows)))]


#: Kind of task -> its systems by name, in the order in which they are tried; a kind without an entry has its words
#: models (`SYSTEMS`). The constant system is added where the entry has none.
BASELINES: LazyTable[Mapping[str, Learner]] = LazyTable(
    {
        "choice": "components.learners.baselines.choice:CHOICE",
        "tagging": "components.learners.baselines.tagging:TAGGING",
        "questions": "components.learners.baselines.questions:QUESTIONS",
    }
)


def baselines_of(kind: str, *, language: str, which: str) -> Mapping[str, Learner]:
    """Name -> system of a kind of task, the constant system last; `language` and `which` as in `data.tasks.<name>`."""
    systems = used(BASELINES.get(kind) or SYSTEMS.get(kind, {}), language=language, which=which)
    return {**systems, MOST_FREQUENT: systems.get(MOST_FREQUENT, most_frequent)}
