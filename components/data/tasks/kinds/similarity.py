"""Similarity of two texts: a number, learned by regression."""

from __future__ import annotations

from components.data.scoring.similarity import Similarity
from components.data.tasks.kind import Kind
from components.data.tasks.reading.numbers import read_numbers
from components.data.tasks.task_io import PAIR_EXAMPLES, number_io

KIND = Kind(
    read=lambda name, source: read_numbers(name, source, (source.first, source.second), ("first text", "second text")),
    io=number_io(["first", "second"], PAIR_EXAMPLES),
    scoring=lambda *_: Similarity(),
)
