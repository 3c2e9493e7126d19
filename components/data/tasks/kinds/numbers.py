"""Rows with a number: the similarity of two texts, or a number for one text, such as a price or a number of stars."""

from __future__ import annotations

import math
from collections import Counter

from components.core.errors import DataError
from components.data.formats.tables import as_text
from components.data.scoring.regression import Regression
from components.data.scoring.similarity import Similarity
from components.data.tasks.data import Examples
from components.data.tasks.kind import Kind
from components.data.tasks.reading.records import all_records, filled_all, is_blank
from components.data.tasks.reading.splits import Row, Rows, examples_of, train_of
from components.data.tasks.task_io import PAIR_EXAMPLES, TEXT_EXAMPLES, number_io
from components.settings.tasks import TaskSource


def read_numbers(name: str, source: TaskSource, columns: tuple[str, ...], what: tuple[str, ...]) -> Examples:
    """Rows of one or more texts with a number (`score`), which is the target.

    Raises:
        DataError: a text is empty, or a score is not a number (file and line); all scores of train are equal; or as
            `examples_of`.
    """
    rows: Rows = {}
    counts: Counter[str] = Counter()
    for split, record in all_records(source, [*columns, source.score], counts, texts=len(columns)):
        value = record.values[-1]
        if source.no_label == "drop" and is_blank(value):
            counts[f"{split}_rows_without_label"] += 1
            continue
        fields = filled_all(record, columns, what)
        try:
            score = number_of(as_text(value, record.origin) or "")
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise DataError(f"{record.origin}: the score ({source.score!r}) is {value!r}, not a number; correct it")
        rows.setdefault(split, []).append(Row(fields, score, record.origin))
    if len({row.target for row in rows["train"]}) < 2:
        raise DataError(
            f"{train_of(source)}: all scores are {rows['train'][0].target:g}; check data.tasks.{name}.score"
        )
    return examples_of(name, source, rows, labels=[], target=lambda row: (row.target,), counts=counts)


def number_of(text: str) -> float:
    """The number in a text, also with a decimal comma.

    Raises:
        ValueError: it is none.
    """
    return float(text.replace(",", ".") if text.count(",") == 1 and "." not in text else text)


SIMILARITY = Kind(
    read=lambda name, source: read_numbers(name, source, (source.first, source.second), ("first text", "second text")),
    io=number_io(["first", "second"], PAIR_EXAMPLES),
    scoring=lambda _: Similarity(),
)

REGRESSION = Kind(
    read=lambda name, source: read_numbers(name, source, (source.text,), ("text",)),
    io=number_io(["text"], TEXT_EXAMPLES),
    scoring=lambda _: Regression(),
)
