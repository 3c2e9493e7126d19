"""Systems without a language model: one table entry per kind of task."""

from collections.abc import Mapping

from components.core.tables import LazyTable
from components.learners.base import Learner
from components.learners.baselines.base import Systems
from components.learners.words.systems import SYSTEMS, used
from components.settings.section import MOST_FREQUENT

#: Kind of task -> its systems; a kind without an entry has its words models (`SYSTEMS`) and the constant system only.
BASELINES: LazyTable[Systems] = LazyTable(
    {
        "choice": "components.learners.baselines.choice:CHOICE",
        "tagging": "components.learners.baselines.tagging:TAGGING",
        "questions": "components.learners.baselines.questions:QUESTIONS",
    }
)


def baselines_of(kind: str, *, language: str, which: str) -> Mapping[str, Learner]:
    """Name -> system of a kind of task, the constant system last; `language` and `which` as in `data.tasks.<name>`."""
    systems = BASELINES.get(kind) or Systems(SYSTEMS.get(kind, {}))
    return {**used(systems.usual, language=language, which=which), MOST_FREQUENT: systems.constant}
