"""What a task's rows say without any language model: one table of systems a kind of task."""

from __future__ import annotations

from collections.abc import Mapping

from components.baselines.base import Baseline, Data, Said, most_frequent
from components.baselines.pairs import CHOICE, PAIR, SIMILARITY, usual_place
from components.baselines.questions import QUESTIONS
from components.baselines.tagging import TAGGING, usual_tags
from components.baselines.texts import BY_CHARACTERS, CLASSIFICATION, MULTILABEL

#: Name of the system that looks at no input.
MOST_FREQUENT = "most-frequent"
#: Languages that are written without spaces between words.
UNSPACED = frozenset(("th", "zh", "ja", "lo", "km", "my"))

#: Kind of task -> name of the system -> what it does; the last one is what every other has to beat.
BASELINES: dict[str, dict[str, Baseline]] = {
    "classification": {**CLASSIFICATION, MOST_FREQUENT: most_frequent},
    "pair": {**PAIR, MOST_FREQUENT: most_frequent},
    "similarity": {**SIMILARITY, MOST_FREQUENT: most_frequent},
    "multilabel": {**MULTILABEL, MOST_FREQUENT: most_frequent},
    "choice": {**CHOICE, MOST_FREQUENT: usual_place},
    "tagging": {**TAGGING, MOST_FREQUENT: usual_tags},
    "questions": {**QUESTIONS, MOST_FREQUENT: most_frequent},
}
#: Further systems, which take their time: for languages without spaces, or where all are asked for.
MORE: dict[str, dict[str, Baseline]] = {"classification": BY_CHARACTERS}


def baselines_of(kind: str, *, language: str, which: str) -> Mapping[str, Baseline]:
    """The systems of a kind of task.

    Args:
        language: `data.tasks.<name>.language`.
        which: `data.tasks.<name>.baselines`, `auto` or `all`.
    """
    more = MORE.get(kind, {}) if which == "all" or language in UNSPACED else {}
    return more | BASELINES.get(kind, {})


__all__ = ["BASELINES", "MOST_FREQUENT", "Baseline", "Data", "Said", "baselines_of"]
