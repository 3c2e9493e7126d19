"""Classification of two texts: paraphrase, entailment."""

from __future__ import annotations

from components.data.scoring.classification import Classification
from components.data.tasks.kind import Kind
from components.data.tasks.kinds.classification import labelled, strata
from components.data.tasks.task_io import PAIR_EXAMPLES, label_io

KIND = Kind(
    read=lambda name, source: labelled(name, source, (source.first, source.second), ("first text", "second text")),
    io=label_io(["first", "second"], PAIR_EXAMPLES),
    scoring=Classification,
    strata=strata,
)
