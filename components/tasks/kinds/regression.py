"""Regression: a number for one text, such as a price or a number of stars."""

from __future__ import annotations

from components.scoring.regression import Regression
from components.tasks.kind import Kind
from components.tasks.reading.numbers import read_numbers
from components.tasks.task_io import TEXT_EXAMPLES, number_io

KIND = Kind(
    read=lambda name, source: read_numbers(name, source, (source.text,), ("text",)),
    io=number_io(["text"], TEXT_EXAMPLES),
    scoring=lambda *_: Regression(),
)
