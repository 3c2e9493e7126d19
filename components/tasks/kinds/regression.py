"""Regression: a number for one text, such as a price or a number of stars."""

from __future__ import annotations

from components.scoring.regression import Regression
from components.settings.tasks import TaskSource
from components.tasks.data import Examples
from components.tasks.kind import Kind
from components.tasks.reading.numbers import read_numbers
from components.tasks.task_io import TEXT_EXAMPLES, number_io


def read_regression(name: str, source: TaskSource) -> Examples:
    """Columns `text` and `score`; a target is the score. Errors as of `read_numbers`."""
    return read_numbers(name, source, (source.text,), ("text",))


KIND = Kind(read=read_regression, io=number_io(["text"], TEXT_EXAMPLES), scoring=lambda *_: Regression())
