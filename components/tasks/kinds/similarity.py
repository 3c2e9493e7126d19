"""Similarity of two texts: a number, learned by regression."""

from __future__ import annotations

from components.scoring.similarity import Similarity
from components.settings.tasks import TaskSource
from components.tasks.data import Examples
from components.tasks.kind import Kind
from components.tasks.reading.numbers import read_numbers
from components.tasks.task_io import PAIR_EXAMPLES, number_io


def read_similarities(name: str, source: TaskSource) -> Examples:
    """Columns `first`, `second` and `score`; a target is the score. Errors as of `read_numbers`."""
    return read_numbers(name, source, (source.first, source.second), ("first text", "second text"))


KIND = Kind(read=read_similarities, io=number_io(["first", "second"], PAIR_EXAMPLES), scoring=lambda *_: Similarity())
