"""Classification of two texts: paraphrase, entailment."""

from __future__ import annotations

from components.scoring.classification import Classification
from components.settings.tasks import TaskSource
from components.tasks.data import Examples
from components.tasks.kind import Kind
from components.tasks.kinds.classification import labelled, strata
from components.tasks.task_io import PAIR_EXAMPLES, label_io

#: Names of the two texts in messages.
SIDES = ("first text", "second text")


def read_pairs(name: str, source: TaskSource) -> Examples:
    """Columns `first`, `second` and `label`; a target is the index of the label in the sorted labels.

    Raises:
        DataError: as `read_classification`; a text of a pair is empty (file and line).
    """
    return labelled(name, source, (source.first, source.second), SIDES)


KIND = Kind(read=read_pairs, io=label_io(["first", "second"], PAIR_EXAMPLES), scoring=Classification, strata=strata)
