"""Regression: a number for one text, such as a price or a number of stars."""

from __future__ import annotations

from components.data.scoring.regression import Regression
from components.data.tasks.kind import Kind
from components.data.tasks.reading.numbers import read_numbers
from components.data.tasks.task_io import TEXT_EXAMPLES, number_io

KIND = Kind(
    read=lambda name, source: read_numbers(name, source, (source.text,), ("text",)),
    io=number_io(["text"], TEXT_EXAMPLES),
    scoring=lambda *_: Regression(),
)
