"""Labelled files as checked examples, one function a kind of task: (name, source) -> Examples."""

from __future__ import annotations

from components.tasks.reading.choice import read_choices
from components.tasks.reading.pairs import read_pairs, read_similarities
from components.tasks.reading.questions import read_questions
from components.tasks.reading.tagging import read_tagging
from components.tasks.reading.texts import read_classification, read_multilabel

__all__ = [
    "read_choices",
    "read_classification",
    "read_multilabel",
    "read_pairs",
    "read_questions",
    "read_similarities",
    "read_tagging",
]
